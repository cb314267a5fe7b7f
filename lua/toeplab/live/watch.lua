-- live/watch.lua: the loop of `toeplab watch`, which shows a sweep in the terminal and reads keys.
-- It reads the store; it stops a trial with a mark (store/marks.lua).
local cards = require "toeplab.live.cards"
local core = require "toeplab.core"
local curves = require "toeplab.live.curves"
local errors = require "toeplab.base.errors"
local metrics = require "toeplab.store.metrics"
local output = require "toeplab.report.output"
local plot = require "toeplab.report.figures.plot"
local alive = require "toeplab.store.alive"
local marks = require "toeplab.store.marks"
local records = require "toeplab.store.records"
local screen = require "toeplab.live.screen"
local sweep_progress = require "toeplab.live.sweep_progress"
local suggest = require "toeplab.base.suggest"
local trial_files = require "toeplab.store.trial_files"

local watch = {}

local Watch = {}
Watch.__index = Watch

local KEY_SECONDS = 0.2     -- between two polls of keys, signals and the size of the terminal
local LOG_BYTES = 16 << 10  -- shown from the end of a log
local POINTS = 200          -- of a curve that is drawn by itself

-- ---- Reading ----------------------------------------------------------------------------------

-- Chooses the metric: the given one, which must be logged if any is; else the loss.
local function choose_metric(self)
  local names, known = self.names, {}
  for _, name in ipairs(names) do known[name] = true end
  if self.wanted and #names > 0 and not known[self.wanted] then
    errors.usage("watch: no trial has logged '%s'%s", self.wanted,
      suggest.hint(self.wanted, names))
  end
  if not known[self.metric] then
    self.metric = self.wanted or known.loss and "loss" or names[1]
  end
end

-- Closes the store that was read last.
local function close(self)
  if self.store then self.store:close() end
  self.store = nil
end

-- Reads the store, and keeps the chosen trial. Opens the store each time, in case its folder was
-- moved, and leaves it open for the curves. The rest is of one moment.
local function refresh(self)
  close(self)
  self.store = records.snapshot(self.folder)
  local store = self.store
  local sweep = sweep_progress.sweep(store, self.name, "watch")
  self.name = self.name or sweep.experiment
  self.names = metrics.names(store, sweep.id)
  choose_metric(self)
  local by_status, all, list, seconds = sweep_progress.of(store, sweep)
  self.trials = metrics.trials(store, sweep.id, self.metric)
  self.used = self.cards:lines(store)
  store:live()
  self.at = math.max(1, math.min(self.at, #self.trials))
  for i, t in ipairs(self.trials) do
    if t.status == "running" and not alive.possibly(store.folder, t) then
      t.status = "killed"
    end
    if t.id == self.chosen then self.at = i end
  end
  self.chosen = self.trials[self.at] and self.trials[self.at].id
  self.title = sweep_progress.line(sweep, by_status, all, seconds)
    .. (#list == 0 and "  (no trial is running)" or "")
end

local function curve_of(self, t, count)
  return self.curves:get(self.store, t.id, self.metric, count, t)
end

-- ---- Views ------------------------------------------------------------------------------------

local views = {}

function views.list(self, s)
  s.trials, s.at, s.metric, s.title = self.trials, self.at, self.metric, self.title
  s.cards = self.used
  s.curve = function(t, width)
    local line = self.metric and screen.sparkline(curve_of(self, t, width).values) or ""
    return screen.fit(line, width)
  end
  return screen.list(s)
end

function views.log(self, s)
  local t = self.trials[self.at]
  local path = ("%s/%s/log.txt"):format(self.folder, trial_files.folder(self.folder, t.id))
  local kind, link = core.sys.kind(path)
  local text = kind == "file" and not link and core.sys.read_file(path) or ""
  s.title = ("%s  %s  %s"):format(t.id:sub(1, 8), t.label, t.status)
  if t.error then text = text .. "\n" .. output.state(t) end
  return screen.text(s, text ~= "" and text:sub(-LOG_BYTES) or "(it has printed nothing)")
end

-- Returns a curve drawn by gnuplot in the size of the terminal, or why it is not.
local function picture(curve, s)
  local columns = math.max(40, math.min(s.columns, 120)) -- within the limits of plot.text
  local spec = { xlabel = "step", key = "none", width = 1000, -- a letter is twice as high as wide
    height = math.max(200, 2 * 1000 * (s.rows - 2) // columns),
    series = { { x = curve.steps, y = curve.values } } }
  local drawn, why = plot.text(spec, { columns = columns, colour = false })
  return drawn or why
end

function views.curve(self, s)
  local t = self.trials[self.at]
  s.title = ("%s  %s  %s"):format(t.id:sub(1, 8), t.label, self.metric or "")
  if not self.metric then return screen.text(s, "(nothing is logged yet)") end
  local curve, size = curve_of(self, t, POINTS), s.columns .. "x" .. s.rows
  if self.drawn_curve ~= curve or self.drawn_size ~= size then
    self.drawn_curve, self.drawn_size, self.drawn = curve, size, "(nothing is logged yet)"
    if #curve.steps > 0 then self.drawn = picture(curve, s) end
  end
  return screen.text(s, self.drawn)
end

local function show(self)
  local s = { columns = core.sys.columns(), rows = core.sys.rows(), note = self.note }
  local view = #self.trials > 0 and self.view or "list"
  local text = screen.draw(views[view](self, s), s.columns, s.rows)
  if text ~= self.shown then io.write(text) end
  self.shown = text
  io.flush()
end

-- ---- Keys -------------------------------------------------------------------------------------

local function move(self, by)
  self.at = math.max(1, math.min(self.at + by, #self.trials))
  self.chosen = self.trials[self.at] and self.trials[self.at].id
end

-- Asks the run to stop the chosen trial; the answer becomes the note.
local function stop(self)
  local ok, why = pcall(function()
    local store <close> = records.open(self.folder, "u")
    marks.stop(store, { words = { self.asks } })
  end)
  self.note = ok and "saving and stopping" or errors.text(why)
  self.asks = nil
end

local keys = {}

function keys.c(self) self.view = "curve" end
function keys.l(self) self.view = "log" end
function keys.k(self) move(self, -1) end
function keys.j(self) move(self, 1) end

function keys.m(self)
  for i, name in ipairs(self.names) do
    if name == self.metric then
      self.metric, self.wanted = self.names[i % #self.names + 1], nil
      return refresh(self)
    end
  end
end

function keys.s(self)
  local t = self.trials[self.at]
  if not t or t.status ~= "running" then
    self.note = "that trial is not running"
    return
  end
  self.asks = t.id
  self.note = ("stop %s %s? y: yes   any other key: no"):format(t.id:sub(1, 8), t.label)
end

local arrows = { ["\27[A"] = "k", ["\27OA"] = "k", ["\27[B"] = "j", ["\27OB"] = "j" }

-- Handles typed keys. After the question whether to stop a trial, only y means yes.
local function press(self, typed)
  local at = 1
  while at <= #typed do
    local word = typed:match("^\27[%[O].", at) or typed:sub(at, at)
    local key = arrows[word] or word
    at = at + #word
    if self.asks then
      self.note = nil
      if key == "y" then stop(self) else self.asks = nil end
    elseif key == "q" then
      self.ends = true
    elseif self.view ~= "list" then
      self.view, self.note = "list", nil
    else
      self.note = nil
      if keys[key] then keys[key](self) end
    end
  end
end

-- ---- The loop ---------------------------------------------------------------------------------

local function enter() io.write "\27[?1049h\27[?25l" end

local function leave()
  io.write "\27[?25h\27[?1049l"
  io.flush()
end

local function loop(self, typing)
  local next_look = -math.huge
  while not self.ends do
    if core.sys.clock() >= next_look then
      refresh(self)
      next_look = core.sys.clock() + self.every
    end
    show(self)
    local typed = typing:read(KEY_SECONDS)
    if not typed or errors.signal() then break end
    press(self, typed)
  end
end

-- Returns whether standard input and output are a terminal that can be redrawn.
function watch.can()
  return core.sys.isatty(0) and core.sys.isatty(1) and os.getenv "TERM" ~= "dumb"
end

-- Shows a sweep until the user quits. o: folder, name (of the experiment, or the
-- number of a sweep; nil: the newest sweep), metric (nil: the loss), every (seconds). Returns the
-- exit code.
function watch.run(o)
  local self = setmetatable({ folder = o.folder, name = o.name, wanted = o.metric, at = 1,
    every = o.every, view = "list", curves = curves.new(),
    cards = cards.new() }, Watch)
  refresh(self) -- so that errors are printed as usual
  core.sys.catch_signals()
  local typing <close> = assert(core.sys.keys())
  enter()
  local ok, why = pcall(loop, self, typing)
  leave()
  close(self)
  if not ok then error(why, 0) end
  local name, code = errors.signal()
  return name and code or errors.DONE
end

return watch
