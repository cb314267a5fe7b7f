-- commands/unlisted/manual.lua: finds words in the manual, for `toeplab help WORDS`.
local core = require "toeplab.core"
local output = require "toeplab.report.output"
local provenance = require "toeplab.trials.provenance"

local manual = {}

local SHOWN, WIDTH = 8, 96 -- sections, and characters of a line

-- Returns the folder of the manual in a checkout or an installation; nil if there is none.
local function folder_of()
  local library = provenance.library()
  for _, path in ipairs { "/../../docs", "/../../../doc/toeplab" } do
    if core.sys.exists(library .. path .. "/guide.md") then return library .. path end
  end
end

-- Returns how many of the patterns the text has.
local function found_in(text, patterns)
  local count, lower = 0, text:lower()
  for _, pattern in ipairs(patterns) do
    if lower:find(pattern) then count = count + 1 end
  end
  return count
end

-- Returns the line, cut to WIDTH around the place where the pattern is.
local function cut(line, pattern)
  line = line:gsub("^[%s|#-]+", ""):gsub("%[[^%]]*%]%(([^)]*)%)", "%1") -- links are shown as places
  if utf8.len(line) and utf8.len(line) <= WIDTH then return line end
  local from = math.max(1, (line:lower():find(pattern) or 1) - WIDTH // 2)
  if from > 1 then from = line:find("%f[%w]", from) or from end
  local part = line:sub(from, from + WIDTH - 1):gsub("%s+%S*$", "")
  return (from > 1 and "... " or "") .. part .. " ..."
end

-- Appends the sections of a page that have all words: {page=, heading=, line=, score=}.
local function add_sections(page, text, patterns, list)
  local section, fence
  local function close()
    if section and found_in(section.all, patterns) == #patterns then
      section.score = 50 * found_in(section.heading, patterns) + 20 * section.most
        + math.min(section.count, 9) + (page:find "^reference/" and 0 or 10)
      list[#list + 1] = section
    end
  end
  for line in text:gmatch "[^\n]+" do
    if line:find "^%s*```" then fence = not fence end
    if line:find "^#+ " and not fence then
      close()
      section = { page = page, heading = line:gsub("^#+ ", ""), all = line, most = 0, count = 0 }
    elseif section and line:find "%w" then
      local count = found_in(line, patterns)
      section.all = section.all .. "\n" .. line
      if count > 0 then section.count = section.count + 1 end
      if count > section.most then section.most, section.line = count, line end
    end
  end
  close()
end

-- Returns the text that shows where the manual has all these words, or begins a word by them; nil
-- and why if it has them nowhere, or is not here.
function manual.find(words)
  local folder, patterns, list = folder_of(), {}, {}
  for word in words:lower():gmatch "%S+" do
    patterns[#patterns + 1] = (word:find "^%w" and "%f[%w]" or "") .. word:gsub("%p", "%%%0")
  end
  if not folder then return nil, "the manual is not here" end
  for _, part in ipairs { "", "reference/" } do
    local names = core.sys.list(folder .. "/" .. part) or {}
    table.sort(names)
    for _, name in ipairs(names) do
      local text = name:find "%.md$" and core.sys.read_file(folder .. "/" .. part .. name)
      if text then add_sections(part .. name, text, patterns, list) end
    end
  end
  if #list == 0 or #patterns == 0 then
    return nil, ("no section of the manual has all of these words: %s"):format(words)
  end
  for i, section in ipairs(list) do section.place = i end
  table.sort(list, function(a, b)
    if a.score ~= b.score then return a.score > b.score end
    return a.place < b.place
  end)
  local lines = {}
  for i = 1, math.min(#list, SHOWN) do
    local s = list[i]
    lines[#lines + 1] = ("%s: %s"):format(s.page, s.heading)
    if s.line then lines[#lines + 1] = "    " .. cut(s.line, patterns[1]) end
  end
  local more = #list > SHOWN and output.count(#list - SHOWN, "more section") .. ". " or ""
  local where = folder:gsub("/[^/]+/[^/]+/%.%./%.%.", ""):gsub("/[^/]+/%.%./", "/")
  lines[#lines + 1] = ("\n%sThe pages are in %s."):format(more, where)
  return table.concat(lines, "\n")
end

return manual
