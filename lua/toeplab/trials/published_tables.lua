-- trials/published_tables.lua: reads the tables of the papers from the files PAPER/TABLE.lua in
-- results/published of the sources, or in `published` of an installation. Each file returns
-- {
--   title = "...", caption = "...", source = "...", rows_are = "decay rate",
--   columns_are = "length",                          -- of a transposed table
--   columns = {            -- metrics: our names for it; the first logged one counts
--     { id = "val", name = "PPL (val)", better = "lower", unit = "M", metrics = { "val_ppl" },
--       times = 100,       -- factor from our unit to the paper's
--       where = { task = "imdb" } },                 -- the trials of this column (default: all)
--   },
--   rows = {               -- name, then a number or text for each column; false is a dash
--     { "0.99 (ours)", 23.98, 23.70, where = { { decay = 0.99 }, { preset = "decay-0.99" } } },
--   },
--   setting = { layers = 7 },                        -- the paper's settings, in our keys
--   average = { of = 5, column = "avg" },            -- this column is the mean of the first five
--   notes = { "..." },                               -- errata, and how to read it
-- }
--
-- where: key -> value or list of values of a trial's configuration, or a list of such tables, one
-- of which must fit.
local core = require "toeplab.core"
local provenance = require "toeplab.trials.provenance"
local space = require "toeplab.trials.space"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local published = {}

-- Returns the folder that holds one folder per paper: in the sources of a build, or in the data of
-- an installation.
function published.folder()
  local library = provenance.library()
  for _, path in ipairs { "/../../results/published", "/../../published" } do
    if core.sys.exists(library .. path) then return library .. path end
  end
  errors.raise(errors.FAILED, "there are no published tables beside %s; in a checkout, git "
    .. "checkout results/published brings them back", library)
end

-- Sorts table2 before table10.
local function by_number(a, b)
  local x, y = tonumber(a:match "%d+$"), tonumber(b:match "%d+$")
  return (x or 0) < (y or 0) or x == y and a < b
end

-- Returns the ids of all tables, such as "tnn/table10", by paper and number.
function published.ids()
  local folder, list = published.folder(), {}
  local papers = core.sys.list(folder) or {}
  -- Lists TNN, the older paper, before SKI, and then field/, whose numbers come from many papers.
  table.sort(papers, function(a, b) return a > b end)
  for _, paper in ipairs(papers) do
    local ids = {}
    for _, file in ipairs(core.sys.list(folder .. "/" .. paper) or {}) do
      local name = file:match "^([%w_-]+)%.lua$"
      if name then ids[#ids + 1] = paper .. "/" .. name end
    end
    table.sort(ids, by_number)
    table.move(ids, 1, #ids, #list + 1, list)
  end
  return list
end

-- Returns a `where` as a list of tables.
local function alternatives(where)
  if not where then return {} end
  return where[1] and where or { where }
end

-- Returns the table of an id; raises a usage error if there is none.
function published.read(id)
  local ok, why = suggest.choose("published table", id, published.ids())
  if not ok then errors.usage("%s", why) end
  local path = published.folder() .. "/" .. id .. ".lua"
  local chunk, problem = loadfile(path, "t", {})
  if not chunk then errors.raise(errors.FAILED, "%s", problem) end
  local result = chunk()
  result.id = id
  for _, row in ipairs(result.rows) do row.where = alternatives(row.where) end
  return result
end

-- Returns the set of configuration keys that the `where` tables of list (rows or columns) mention.
function published.keys(list)
  local set = {}
  for _, item in ipairs(list) do
    for _, where in ipairs(alternatives(item.where)) do
      for key in pairs(where) do set[key] = true end
    end
  end
  return set
end

local function asks(where, set)
  for key in pairs(where) do
    if set[key] then return true end
  end
  return false
end

local function known(where, values)
  for key in pairs(where) do
    if values[key] == nil then return false end
  end
  return true
end

-- Returns a function that maps a configuration to the row of the table that it reproduces, or nil.
-- axes: the set of keys that vary. If any `where` table mentions one of them, those that mention
-- none are ignored, so that a key which all trials share decides only where no other key does.
function published.matcher(rows, axes)
  local some = false
  for _, row in ipairs(rows) do
    for _, where in ipairs(row.where) do some = some or asks(where, axes) end
  end
  return function(values)
    for _, row in ipairs(rows) do
      for _, where in ipairs(row.where) do
        local counts = known(where, values) and (asks(where, axes) or not some)
        if counts and space.fits(where, values) then return row end
      end
    end
  end
end

return published
