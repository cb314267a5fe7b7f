-- session.lua: opens a stored model and applies it to arrays for session.py, which starts this
-- script. Each request is a line of standard input; arrays pass through files of NumPy in FOLDER.
-- The answer is a line: "ok", or "error" and the message.
--
--   open WORD DIR     (the words are arguments of the script)
--   forward COUNT     applies the model to 1.npy, 2.npy, ...; the result is in out.npy
--   encode            the tokens of the file text are in out.npy
--
-- toeplab lua session.lua FOLDER WORD [DIR]
local tl = require "toeplab"
local errors = require "toeplab.base.errors"

-- Output that a model prints must not be taken for an answer.
local answers = io.stdout
rawset(_G, "print", function(...) io.stderr:write(table.concat({ ... }, "\t"), "\n") end)
io.output(io.stderr)

local folder, word, dir = table.unpack(arg)
local model, vocab

local requests = {}

function requests.open()
  model, vocab = tl.model(word, { dir = dir })
end

function requests.forward(count)
  local inputs = {}
  for i = 1, tonumber(count) do inputs[i] = tl.load(("%s/%d.npy"):format(folder, i)) end
  tl.no_grad(function() tl.save(folder .. "/out.npy", (model(table.unpack(inputs)))) end)
end

function requests.encode()
  if not vocab then error("the model has no vocabulary: give ids", 0) end
  local file <close> = assert(io.open(folder .. "/text", "rb"))
  tl.save(folder .. "/out.npy", vocab:encode(file:read "a"))
end

local function answer(line)
  local name, value = line:match "^(%a+) ?(.*)$"
  local ok, why = pcall(requests[name], value)
  if ok then
    answers:write "ok\n"
  else -- without the place of the call here
    why = errors.text(why):gsub("^.-session%.lua:%d+: ", ""):gsub("\n", " ")
    answers:write("error ", why, "\n")
  end
  answers:flush()
end

answer "open"
for line in io.lines() do answer(line) end
