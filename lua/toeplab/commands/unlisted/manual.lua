-- commands/unlisted/manual.lua: answers a question from the manual, for `toeplab help WORDS`.
local core = require "toeplab.core"
local declared = require "toeplab.commands.unlisted.declared"
local output = require "toeplab.report.output"
local provenance = require "toeplab.trials.provenance"
local suggest = require "toeplab.base.suggest"

local manual = {}

local SHOWN, WIDTH = 8, 96 -- sections, and characters of a line
local LEAST = 0.5          -- sections with less than this part of the best score are left out

-- Words of a question that name no subject.
local FILLERS = " a about after all am an and any are as be by can could do does for from get give "
  .. "have how i if in into is it its make me must my of on or should so some than that the their "
  .. "them then there these they this to use used using want was we were what when where which "
  .. "who why will with would you your "

-- Returns the folder of the manual in a checkout or an installation; nil if there is none.
local function folder_of()
  local library = provenance.library()
  for _, path in ipairs { "/../../docs", "/../../../doc/toeplab" } do
    if core.sys.exists(library .. path .. "/guide.md") then return library .. path end
  end
end

-- Returns the words of a question, without fillers unless it has no other word: {word=, pattern=},
-- whose pattern finds the beginning of a word, and for "texts" that of "text".
local function terms_of(question)
  local all, telling = {}, {}
  for word in question:lower():gmatch "%S+" do
    word = word:match "^(.-)[?!.,;:]+$" or word
    local stem = word:gsub("(%w%w[^s%W])s$", "%1"):gsub("(%w%w%w[^e%W])ed$", "%1")
      :gsub("(%w%w%w%w)ing$", "%1"):gsub("(%w%w%w%w%w)e$", "%1")
    local term = word ~= "" and { word = word, pattern = (word:find "^%w" and "%f[%w]" or "")
      .. stem:gsub("%p", "%%%0"):gsub("iz", "i[sz]") .. (word:find "^%d+$" and "%f[%D]" or "") }
    all[#all + 1] = term or nil
    if term and not FILLERS:find(" " .. word .. " ", 1, true) then telling[#telling + 1] = term end
  end
  return #telling > 0 and telling or all
end

-- Returns the sum of the weights of the terms that the text has, and the place of the first one.
local function weight_in(text, terms)
  local sum, first, lower = 0, math.huge, text:lower()
  for _, term in ipairs(terms) do
    local at = lower:find(term.pattern)
    if at then sum, first = sum + term.weight, math.min(first, at) end
  end
  return sum, first
end

-- Returns the line, cut to WIDTH around the first of the terms.
local function cut(line, terms)
  line = line:gsub("^[%s|#-]+", ""):gsub("!%[([^%]]*)%]%b()", "%1") -- images are shown as captions,
    :gsub("%[[^%]]*%]%(([^)]*)%)", "%1")                             -- links as places
  if utf8.len(line) and utf8.len(line) <= WIDTH then return line end
  local _, first = weight_in(line, terms)
  local from = first < math.huge and math.max(1, first - WIDTH // 2) or 1
  if from > 1 then from = line:find("%f[%w]", from) or from end
  local part = line:sub(from, from + WIDTH - 1):gsub("%s+%S*$", "")
  return (from > 1 and "... " or "") .. part .. " ..."
end

-- Returns the lines of the index, docs/README.md, by the place to which they link.
local function index_of(text)
  local index = {}
  for item in ("\n" .. text):gsub("\n  ", " "):gmatch "\n%- ([^\n]+)" do
    local line = item:gsub(":? ?%[[^%]]*%]%([^)]*%):? ?", "")
    for place in item:gmatch "%]%(([^)]*)%)" do
      index[place] = (index[place] or "") .. line .. "\n"
    end
  end
  return index
end

-- Appends the sections of a page; `asked` holds the lines of the index that link to a section.
local function add_sections(page, text, index, list)
  local section, fence
  for line in text:gmatch "[^\n]+" do
    if line:find "^%s*```" then fence = not fence end
    local level, heading = line:match "^(#+) (.*)"
    if level and not fence then
      local anchor = heading:lower():gsub("[^%w%s_-]", ""):gsub("%s", "-")
      local asked = index[level == "#" and page or page .. "#" .. anchor] or ""
      section = { page = page, heading = heading, asked = asked, text = "" }
      section.place, list[#list + 1] = #list, section
    elseif section and line:find "%w" then
      section.text = section.text .. line .. "\n"
    end
  end
end

-- Sorts the sections by the terms that they have: rare ones count more, and so do those in the head
-- and in one line. Sets the terms' weights, and `score` and the best `line` of each section.
local function rank(sections, terms)
  for _, s in ipairs(sections) do
    s.head = s.heading .. "\n" .. s.asked
    s.all = (s.head .. "\n" .. s.text):lower()
  end
  for _, term in ipairs(terms) do
    local count = 1
    for _, s in ipairs(sections) do
      if s.all:find(term.pattern) then count = count + 1 end
    end
    term.weight = math.log(1 + #sections / count)
  end
  for _, s in ipairs(sections) do
    local all, most = weight_in(s.all, terms), 0
    for line in (all > 0 and s.text .. s.asked or ""):gmatch "[^\n]+" do
      local weight = weight_in(line, terms)
      if weight > most then most, s.line = weight, line end
    end
    s.score = all + 2 * weight_in(s.head, terms) + 2 * most
  end
  table.sort(sections, function(a, b)
    return a.score > b.score or a.score == b.score and a.place < b.place
  end)
end

-- Returns the text that shows the sections which have most of a question's words, or words that
-- begin alike; nil and why if no section has one, or the manual is not here. A question that is the
-- name of a function or class is answered by what the reference declares.
function manual.find(question)
  local folder, terms, list, pages = folder_of(), terms_of(question), {}, {}
  if not folder then return nil, "the manual is not here" end
  local index = index_of(core.sys.read_file(folder .. "/README.md") or "")
  for _, part in ipairs { "", "reference/" } do
    local names = core.sys.list(folder .. "/" .. part) or {}
    table.sort(names)
    for _, name in ipairs(names) do
      local text = name:find "%.md$" and part .. name ~= "README.md" -- which is the index
        and core.sys.read_file(folder .. "/" .. part .. name)
      if text then add_sections(part .. name, text, index, list) end
      if text and part ~= "" then pages[#pages + 1] = { part .. name, text } end
    end
  end
  local where = folder:gsub("/[^/]+/[^/]+/%.%./%.%.", ""):gsub("/[^/]+/%.%./", "/")
  local answer, shown = declared.find(pages, question)
  if answer and question:find "[.:]" then
    return ("%s\n\nThe pages are in %s."):format(answer, where)
  end
  rank(list, terms)
  local lines, count = { answer }, 0
  for _, s in ipairs(list) do
    if s.score == 0 or s.score < LEAST * list[1].score then break end
    count = count + 1
    local missing = {}
    for _, term in ipairs(terms) do
      if not s.all:find(term.pattern) then missing[#missing + 1] = term.word end
    end
    if count <= SHOWN and not (shown and shown[s.page .. ": " .. s.heading]) then
      lines[#lines + 1] = ("%s: %s%s"):format(s.page, s.heading,
        #missing > 0 and (" (without: %s)"):format(table.concat(missing, ", ")) or "")
      if s.line then lines[#lines + 1] = "    " .. cut(s.line, terms) end
    end
  end
  if count == 0 and question:find "^tl%.[%w_.]+$" then
    local near = suggest.near(question, declared.names(pages))
    return nil, ("the library has no '%s'%s"):format(question, near)
  elseif count == 0 then
    return nil, ("no section of the manual has any of these words: %s"):format(question)
  end
  local more = count > SHOWN and output.count(count - SHOWN, "more section") .. ". " or ""
  lines[#lines + 1] = ("\n%sThe pages are in %s."):format(more, where)
  return table.concat(lines, "\n")
end

return manual
