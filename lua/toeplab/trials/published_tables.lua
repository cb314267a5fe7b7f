-- trials/published_tables.lua: reads the tables and figures of the papers from the files
-- PAPER/tableN.lua and PAPER/figureN.lua in results/published of the sources, or in `published` of
-- an installation. Each file returns
-- {
--   title = "...", caption = "...", source = "...", rows_are = "decay rate",
--   columns_are = "length",                          -- of a transposed table
--   columns = {            -- metrics: our names for it; the first logged one counts
--     { id = "val", name = "PPL (val)", better = "lower", unit = "M", metrics = { "val_ppl" },
--       times = 100,       -- factor from our unit to the paper's
--       where = { task = "imdb" } },                 -- the trials of this column (default: all)
--   },
--   rows = {               -- name, then a number or text for each column; false is a dash, and
--                          -- "drawn" a value that the paper draws but does not print
--     { "0.99 (ours)", 23.98, 23.70, where = { { decay = 0.99 }, { preset = "decay-0.99" } } },
--   },
--   numbers = "tnn/table15",                         -- of a figure: takes missing fields from this
--                                                    -- table or figure
--   draw = "plot @last matrix",                      -- of a figure: the command that draws ours
--   instead = "...",       -- the alternative, if no experiment answers the whole table
--   setting = { layers = 7 },                        -- the paper's settings, in our keys
--   settings = { { where = { task = "imdb" }, setting = { layers = 4 } } },  -- and of some trials
--   bytes_per_token = 4.5,    -- of the paper's text; of claims
--   average = { of = 5, column = "avg" },            -- this column is the mean of the first five
--   notes = { "..." },                               -- errata, and how to read it
--   claims = {             -- what the paper says of it: a sentence, and the ratio that it asserts
--     { says = "...", row = "0.90", over = "0.99 (ours)", column = "val", above = 1 },
--   },
-- }
--
-- A claim compares the row `row` with the row `over`. `over` may be a list of rows, for a
-- comparison with each, or "others", for all other rows; without it, the row is compared with
-- itself. A `where` table instead of a row names a setting that the table lacks. The claim compares
-- a `column` (an id or a list of ids), the mean of the columns in `mean_of` (a list of ids), or a
-- `metric` (a name or a list of names); "ppl@16x" is the metric at 16 times the training length.
-- `over_metric` is the metric of the other side, if it differs. The ratio of the two values is
-- `above` or `below` a number, or `within` a factor f, i.e. from 1/f to f. Perplexities are first
-- converted to tokens of bytes_per_token bytes.
-- report/verdicts/claims.lua judges whether trials support it.
--
-- where: key -> value or list of values of a trial's configuration, or a list of such tables, one
-- of which must match.
local core = require "toeplab.core"
local provenance = require "toeplab.trials.provenance"
local space = require "toeplab.trials.space"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local published = {}

-- Returns the folder that holds one folder per paper: in the sources of a build, or in the data of
-- an installation.
function published.folder()
  return provenance.data "results/published" or provenance.data "published"
    or errors.raise(errors.FAILED, "there are no published tables beside %s; in a checkout, "
      .. "`git checkout results/published` restores them", provenance.library())
end

-- Sorts table2 before table10, and tables before figures.
local function by_number(a, b)
  local kind, x, rest = a:match "(%l+)(%d+)(%l*)$"
  local other, y, more = b:match "(%l+)(%d+)(%l*)$"
  if not kind or not other then return a < b end
  if kind ~= other then return kind > other end
  x, y = tonumber(x), tonumber(y)
  return x < y or x == y and rest < more
end

-- Returns the ids of all tables and figures, such as "tnn/table10", by paper, kind and number.
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

-- Returns the result of the file of an id.
local function content(id)
  local chunk, problem = loadfile(published.folder() .. "/" .. id .. ".lua", "t", {})
  if not chunk then errors.raise(errors.FAILED, "%s", problem) end
  return chunk()
end

-- Returns the table or figure of an id; raises a usage error if there is none.
function published.read(id)
  local ok, why = suggest.choose("published table", id, published.ids())
  if not ok then errors.usage("%s", why) end
  local result = content(id)
  result.id = id
  for key, value in pairs(result.numbers and content(result.numbers) or {}) do
    if result[key] == nil then result[key] = value end
  end
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
-- axes: the set of keys that vary. If a `where` table mentions one of them, tables that mention
-- none are ignored, so that a key that all trials share decides only if no other key does.
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
