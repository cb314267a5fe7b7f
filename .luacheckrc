-- What luacheck is to find: `luacheck .` in this folder.
std = "lua54"
max_line_length = 100
self = false -- methods that do not use their object
ignore = {
  "211/guard", "211/restore", "211/file", -- variables that are closed at the end of their block
  "311", -- x = nil, which frees a tensor; and values that stand in until others are known
  "241", "331", -- variables that hold on to an object
  "431", "432", -- a name of the file that a function uses for its own
  "581", -- not (x <= y), which is true for what is not a number
}
files["results"] = { max_line_length = false }
files["tests"] = { ignore = { "122" } } -- tests that listen to what is printed
files[".luacheckrc"] = { std = "min", allow_defined_top = true }
exclude_files = { "build*", "results/runs" }
