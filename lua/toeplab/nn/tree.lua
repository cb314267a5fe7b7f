-- nn/tree.lua: formats a module as a tree: a line for each module, with its options and its number
-- of parameters. Equal neighbours share a line.

local tree = {}

local function thousands(n)
  local text = tostring(n)
  local head = #text % 3
  local parts = { head > 0 and text:sub(1, head) or nil }
  for i = head + 1, #text, 3 do parts[#parts + 1] = text:sub(i, i + 2) end
  return table.concat(parts, ",")
end

tree.thousands = thousands

-- Returns the module's own text, or else its options that differ from the defaults and are plain
-- values: "expand=2 causal=false".
local function brief(module)
  if module.brief then return module:brief() end
  local words = {}
  for _, name in ipairs(module.spec.order) do
    local value, default = module.opt[name], module.spec.fields[name].default
    local plain = type(value) == "number" or type(value) == "string" or type(value) == "boolean"
    if plain and value ~= default then words[#words + 1] = ("%s=%s"):format(name, value) end
  end
  return table.concat(words, " ")
end

-- Returns a module and its submodules as nested nodes {name=, line=, count=, parts=}.
local function node(name, module)
  local line = module.kind
  local about = brief(module)
  if about ~= "" then line = line .. " " .. about end
  local n = { name = tostring(name), line = line, count = module:count(), parts = {} }
  for _, field in ipairs(module:fields()) do
    if type(field.value) == "table" then n.parts[#n.parts + 1] = node(field.name, field.value) end
  end
  return n
end

local function signature(n)
  local parts = { n.line, tostring(n.count) }
  for _, part in ipairs(n.parts) do parts[#parts + 1] = part.name .. ":" .. signature(part) end
  return "(" .. table.concat(parts, ";") .. ")"
end

-- Merges consecutive numbered parts that look the same: 1, 2, 3 become "1-3".
local function merged(parts)
  local list = {}
  for _, part in ipairs(parts) do
    local last = list[#list]
    local numbered = last and part.name:find "^%d+$" and last.first:find "^%d+$"
    if numbered and last.signature == signature(part) then
      last.count, last.name = last.count + part.count, last.first .. "-" .. part.name
    else
      list[#list + 1] = {
        name = part.name, first = part.name, signature = signature(part), line = part.line,
        count = part.count, parts = part.parts,
      }
    end
  end
  return list
end

local function render(n, depth, lines)
  local label = n.name == "" and n.line or n.name .. ": " .. n.line
  local text = ("  "):rep(depth) .. label
  lines[#lines + 1] = { text, n.count > 0 and thousands(n.count) or "" }
  for _, part in ipairs(merged(n.parts)) do render(part, depth + 1, lines) end
end

-- Returns the tree of a module as text, with the numbers of parameters in a column at the right.
function tree.text(module)
  local lines, wide = {}, 0
  render(node("", module), 0, lines)
  for _, line in ipairs(lines) do wide = math.max(wide, #line[1]) end
  local out = {}
  for i, line in ipairs(lines) do
    out[i] = line[2] == "" and line[1]
      or ("%s%s  %12s"):format(line[1], (" "):rep(wide - #line[1]), line[2])
  end
  return table.concat(out, "\n")
end

return tree
