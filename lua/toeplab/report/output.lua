-- report/output.lua: prints rows as a table, CSV or JSON lines, and formats sizes and times.
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local quantity = require "toeplab.base.quantity"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"

local output = {}

-- Returns data verbatim, but without control characters if standard output is a terminal.
function output.data(text) return core.sys.isatty(1) and core.sys.clean(text) or text end

-- Writes text to the file at path atomically, but writes to a pipe, a device or a link's target
-- directly. Raises on failure.
function output.save(path, text)
  local kind, link = core.sys.kind(path)
  local ok, why, _, status
  if kind ~= "other" and not link then
    ok, why, _, status = core.sys.write_file(path, text)
  else
    local file, problem, number = io.open(path, "wb")
    if file then
      ok, problem, number = file:write(text)
      local closed, late, code = file:close()
      if ok and not closed then ok, problem, number = nil, late, code end
    end
    why, status = ("%s: %s"):format(path, problem), errors.status_of(number)
  end
  if not ok then errors.raise(errors.code_of(status), "%s", why) end
end

-- Writes text to standard output. Raises on failure, so that a long output ends at once.
function output.write(text)
  local ok, why = io.write(text)
  if not ok then errors.raise(errors.FAILED, "standard output: %s", why) end
end

output.csv = { name = "csv", help = "as CSV" }
output.json = { name = "json", help = "as JSON, one object a line",
  more = [[Values that JSON lacks are the texts `nan`, `inf` and `-inf`.]] }
output.dir = { name = "dir", short = "C", value = "DIR", help = "the results folder" }
output.dry_run = { name = "dry-run", short = "n", help = "only print what would be done" }

-- Describes how a trial ended: "interrupted: stopped on request at step 5; the same command
-- continues". row: of v_trials.
function output.state(row)
  return row.status .. (row.error and ": " .. row.error or "")
    .. (row.status == "interrupted" and "; the same command continues" or "")
end

-- Returns a stored command for repetition, without --redo, which earlier programs stored.
function output.again(command) return ((command .. " "):gsub(" %-%-redo ", " "):sub(1, -2)) end

-- Raises if the options name more than one form.
function output.check(verb, set)
  if set.csv and set.json then errors.usage("%s: choose one of --csv and --json", verb) end
end

-- Prints rows (lists) under header in the form of the options in set. exact: as for
-- text_table.lines.
function output.rows(set, header, rows, exact)
  if set.json then
    for _, row in ipairs(rows) do
      local object = {}
      for c, name in ipairs(header) do object[name] = row[c] end
      print(json.line(object))
    end
  elseif set.csv then
    output.write(text_table.csv(header, rows))
  else
    text_table.print(header, rows, exact)
  end
end

-- Turns flat records into a header (the names in `first`, then all others sorted) and rows.
function output.columns(records, first)
  local names, header, rows = {}, {}, {}
  for _, record in ipairs(records) do
    for name in pairs(record) do names[name] = true end
  end
  for i, name in ipairs(first or {}) do header[i], names[name] = name, nil end
  for _, name in ipairs(sorted_keys(names)) do header[#header + 1] = name end
  for i, record in ipairs(records) do
    rows[i] = {}
    for c, name in ipairs(header) do rows[i][c] = record[name] end
  end
  return header, rows
end

function output.when(seconds)
  return seconds and os.date("%Y-%m-%d %H:%M", math.floor(seconds)) or nil
end

-- Formats a size: 512 B, 3.4 MB, 1.2 GB.
function output.bytes(n)
  if n < 1000 then return ("%d B"):format(n) end
  for _, unit in ipairs { "kB", "MB", "GB" } do
    n = n / 1000
    if n < 1000 or unit == "GB" then return ("%.1f %s"):format(n, unit) end
  end
end

local LONGEST = 120 -- characters of the name of a file

-- Returns a file's name (without its ending) for name and the filters KEY=VALUE that chose its
-- content. A part that is long or has invalid characters is shortened and gets a hash.
function output.file_name(name, filters)
  local hashed = {}
  for _, word in ipairs(filters) do
    if not word:find "^[%w_]+=[%w_]+$" then hashed[#hashed + 1] = word end
    name = name .. "-" .. word
  end
  local plain = name:gsub("[^%w_.-]+", "-"):gsub("%-+", "-"):gsub("^[-.]", ""):gsub("%-$", "")
  if #plain > LONGEST - 7 then hashed = filters end
  if #hashed == 0 then return plain:sub(1, LONGEST) end
  return plain:sub(1, LONGEST - 7) .. "-" .. core.sha256(table.concat(hashed, "\n")):sub(1, 6)
end

output.count = quantity.count

return output
