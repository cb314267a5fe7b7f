-- commands/unlisted/declared.lua: finds what the reference declares under a name: signatures with
-- their text, options, and the example of their section, for `toeplab help NAME`.
local declared = {}

local EXAMPLES = 2 -- sections that are shown with their examples, if not more have the name

-- Returns a row of a table of options as a line; nil if it is none.
local function option_line(row)
  local cells = {}
  for cell in row:gsub("\\|", "\0"):gsub("^| ", ""):gmatch "([^|]*) |" do
    cells[#cells + 1] = cell:gsub("^ ", ""):gsub("\0", "|"):gsub("[`\\]", "")
  end
  local name, meaning, default, kind = table.unpack(cells)
  if not kind then return nil end
  if default ~= "" and default ~= "required" then default = "default " .. default end
  return ("    %s: %s (%s%s)"):format(name, meaning, default ~= "" and default .. "; " or "", kind)
end

-- Reads the sections of a page of the reference: {title=, entries= (declarations as they stand),
-- options= (name of a function or class -> lines), examples=}.
local function sections_of(page, text)
  local list, section, info, of = {}, nil, nil, nil
  for line in text:gmatch "([^\n]*)\n" do
    local fence, title = line:match "^```(.*)$", not info and line:match "^#+ (.*)$"
    local last = section and #section.entries
    if title then
      section = { title = page .. ": " .. title, entries = {}, options = {}, examples = {} }
      list[#list + 1], of = section, title:match "^tl%.[%w_.]+"
      if of then section.entries[1] = title end
    elseif fence then
      info = not info and fence or nil
      if info == "lua" then section.examples[#section.examples + 1] = "" end
    elseif info == "lua" then
      local example = #section.examples
      section.examples[example] = section.examples[example] .. "    " .. line .. "\n"
    elseif info == "signatures" and line:find "^%S" then
      section.entries[last + 1] = line
    elseif info == "signatures" or of and last == 1 and line:find "^[^|<]" then
      section.entries[last] = section.entries[last] .. "\n    " .. line:gsub("^%s+", "")
    elseif line:find "^<!%-%- made: tl%." then
      of = line:match "made: (%S+)"
    elseif of then
      section.options[of] = section.options[of] or {}
      table.insert(section.options[of], line:find "^| `" and option_line(line) or nil)
    end
  end
  return list
end

-- Returns whether an entry declares the name, or says that its function is another library's of
-- this name.
local function has(entry, name, own)
  local word = name:gsub("^[%w_]+:", ""):gsub("%p", "%%%0")
  local head = " " .. entry:match "^[^\n]*"
  return head:find((own and " " or "[.:]") .. word .. "[(:]") ~= nil
    or not own and name:find "%w%.%w" and entry:find("[( ]" .. word .. "[,)]") ~= nil
end

-- Returns the text that shows what is declared under a name in pages, a list of {page, text}, and
-- the set of the titles of the sections in it; nil if nothing is.
function declared.find(pages, name)
  if not name:find "[%w_]$" then return end
  local own, found, titles, lines = name:find "^tl%." ~= nil, {}, {}, {}
  for _, page in ipairs(pages) do
    for _, section in ipairs(sections_of(page[1], page[2])) do
      local entries = {}
      for _, entry in ipairs(section.entries) do
        if has(entry, name, own) then entries[#entries + 1] = entry end
      end
      if entries[1] then found[#found + 1] = { section = section, entries = entries } end
    end
  end
  for _, at in ipairs(found) do
    lines[#lines + 1], titles[at.section.title] = at.section.title, true
    for _, entry in ipairs(at.entries) do
      lines[#lines + 1] = "    " .. entry:gsub("\n", "\n    ")
      local options = at.section.options[entry:match "tl%.[%w_.]+"]
      for _, line in ipairs(options or {}) do lines[#lines + 1] = "    " .. line end
    end
    local call, shown = "[.:]" .. name:match "[%w_]+$" .. "%f[^%w_]", nil
    for _, example in ipairs(at.section.examples) do
      if not shown or example:find(call) and not shown:find(call) then shown = example end
    end
    if shown and #found <= EXAMPLES then lines[#lines + 1] = "\n" .. shown:match "^(.*)\n" end
  end
  if #lines > 0 then return table.concat(lines, "\n"), titles end
end

-- Returns the names of the library, tl.NAME, that are declared in pages.
function declared.names(pages)
  local names = {}
  for _, page in ipairs(pages) do
    for _, section in ipairs(sections_of(page[1], page[2])) do
      for _, entry in ipairs(section.entries) do
        local head = " " .. entry:match "^[^\n]*"
        for name in head:gmatch " (tl%.[%w_.]*[%w_])" do names[#names + 1] = name end
      end
    end
  end
  return names
end

return declared
