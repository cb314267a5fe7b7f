-- models/predictor.lua: computes the logits of the next token of a text, by one of several methods.
-- All except window compute the model's function at one length (lags), so the same random numbers
-- give the same tokens.
--   window  runs the model on the last tokens only, the window, so that it forgets the beginning of
--           a longer text
--   fft     runs the model on the whole text: each token costs a forward pass of length lags
--   ring    stores the last inputs of each operator: a token costs lags products per channel
--   etsc    stores the state of a sum of exponentials for each operator (recurrent.lua)
--   relaxed stores the last inputs and adds up old ones in blocks: a token costs log^2 lags
--           products per channel on average, and the prompt one forward pass
--   auto    ring or relaxed, whichever is faster at the lags of the operator; fft for a model with
--           parts that do not run position by position

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"
local recurrent = require "toeplab.models.recurrent"

local predictor = {}

predictor.methods = { "window", "fft", table.unpack(recurrent.methods) }

-- Returns the options of a predictor, a list of {name, field, help}, for callers' declarations.
function predictor.fields()
  return {
    { "method", options.field { default = "window", choices = predictor.methods },
      "how the logits are computed" },
    { "window", options.field { default = 256, min = 1, max = 1 << 40 },
      "method window: the model sees this many last tokens" },
    { "trained", options.field { type = "int", min = 1, optional = true },
      "method window: beyond this length a window is at most as wide as its text" },
    { "lags", options.field { type = "int", min = 1, max = 1 << 40, optional = true },
      "other methods: an operator sees this many last tokens (default: all of the text)" },
    { "form", options.field { default = "exact", choices = recurrent.forms },
      "method etsc: exact, or published, which is right for the first lags tokens" },
    { "session", options.field { type = "table", optional = true },
      "a session of toeplab.recurrent to use, instead of a method" },
  }
end

-- Returns the method by which the options o compute the logits of a model, and the reason if auto
-- cannot run the model position by position. Raises, before any costly work, if the method cannot
-- be used for the model.
function predictor.method_of(model, o)
  if o.session or o.method == "window" or o.method == "fft" then return o.method end
  local fine, why = pcall(recurrent.operators, model)
  if fine then return o.method end
  if o.method == "auto" and errors.is(why) then return "fft", errors.text(why) end
  error(why, 0)
end

-- ---- One text -----------------------------------------------------------------------------------

-- Returns the logits [vocab] after the last of the states of ids [1,n], which is at `at`. With a
-- session, ids are the tokens that follow the processed ones.
local function logits_at(model, session, ids, at)
  if model.hidden then
    local states = session and session:hidden(ids) or model:hidden(ids)
    return model:logits(states:narrow(2, at, 1)):reshape(-1)
  end
  local all = session and session:forward(ids) or model(ids)
  return all:narrow(2, at, 1):reshape(-1)
end

local Recomputing = {}
Recomputing.__index = Recomputing

-- Returns the logits after the tokens in the list ids, which follow the previous ones. The model
-- runs on a window of fixed length. A shorter text is padded at the right, which a causal model
-- ignores.
function Recomputing:feed(ids)
  local all, width = self.ids, self.width
  table.move(ids, 1, #ids, #all + 1, all)
  if #all >= 2 * width then self.ids = table.move(all, #all - width + 1, #all, 1, {}) end
  all = self.ids
  local seen, row = math.min(#all, width), {}
  for i = 1, width do row[i] = i <= seen and all[#all - seen + i] or 0 end
  return logits_at(self.model, nil, core.ids { row }, seen)
end

function Recomputing:close() end

local Stepping = {}
Stepping.__index = Stepping

function Stepping:feed(ids)
  return logits_at(self.model, self.session, core.ids { ids }, #ids)
end

function Stepping:close()
  if not self.borrowed then self.session:close() end
end

local function recomputing(model, width)
  return setmetatable({ model = model, width = width, ids = {} }, Recomputing)
end

-- borrowed: the session belongs to the caller.
local function stepping(model, session, borrowed)
  return setmetatable({ model = model, session = session, borrowed = borrowed }, Stepping)
end

-- Returns how many tokens an operator sees in a text of `total` tokens (nil: no limit).
local function lags_of(o, method, total)
  if not total and (method == "fft" or not o.lags) then
    errors.usage("generate: without a limit a text requires %s", method == "fft"
      and "a method other than fft, or a number of tokens" or "lags, or method window")
  end
  if method == "fft" and o.lags and o.lags < total then
    errors.usage("generate: method fft recomputes the whole text: lags = %d is less than its "
      .. "%d tokens (method window cuts it)", o.lags, total)
  end
  return o.lags or total
end

-- Returns a session for texts to which n tokens will be added (nil: no limit).
local function session_of(model, o, method, lags, n)
  return recurrent.new(model, { method = method, form = o.form, lags = lags,
    positions = n and math.max(1, n) or 0 })
end

-- Returns a session whose kernels all texts of a batch share through forks; nil if each text needs
-- its own because o.lags is not set, or if the model cannot run position by position.
function predictor.common(model, o)
  local method = predictor.method_of(model, o)
  if o.session then return o.session:reset() end
  if not o.lags or method == "window" or method == "fft" then return end
  return session_of(model, o, method, o.lags, o.n)
end

-- Returns a predictor for a text that begins with `count` tokens, to which n will be added (nil: no
-- limit). o has the options of predictor.fields; session: its own, instead of o.session. Its method
-- feed(ids) takes the list of the next tokens and returns the logits [vocab] after them; close()
-- frees its memory.
function predictor.open(model, o, count, n, session)
  if session then return stepping(model, session) end
  if o.session then return stepping(model, o.session:reset(), true) end
  local method = predictor.method_of(model, o)
  if method == "window" then
    local most = o.trained and n and math.max(o.trained, count + n) or o.window
    return recomputing(model, math.min(o.window, most))
  end
  local lags = lags_of(o, method, n and math.max(1, count + n - 1))
  if method == "fft" then return recomputing(model, lags) end
  return stepping(model, session_of(model, o, method, lags, n))
end

-- ---- Several texts ------------------------------------------------------------------------------

-- Returns the list of the logits after one more token of several texts: ids[i] belongs to
-- predictors[i], with i up to count; both may have holes. Texts that run position by position are
-- computed together, in a batch of count rows (recurrent.step_rows).
function predictor.feed_rows(model, predictors, count, ids)
  local sessions, row, logits = {}, {}, {}
  for i = 1, count do
    local of = predictors[i]
    row[i] = { of and ids[i] or 0 }
    if of and of.session then
      sessions[i] = of.session
    elseif of then
      logits[i] = of:feed { ids[i] }
    end
  end
  if not next(sessions) then return logits end
  local all = recurrent.step_rows(model, sessions, count, model.hidden or model.forward,
    core.ids(row))
  if model.hidden then all = model:logits(all) end
  for i in pairs(sessions) do logits[i] = all:narrow(1, i, 1):reshape(-1) end
  return logits
end

return predictor
