-- verify/reference.lua: runs the cases of a reference file (HDF5, one group per case) and measures
-- the distance of each output from the expected one.
local core = require "toeplab.core"
local optim = require "toeplab.train.optim"
local distance = require("toeplab.verify.distance").distance
local mixers = require "toeplab.verify.mixers"
local module_case = require "toeplab.verify.module_case"
local published = require "toeplab.models.published"
local schedule = require "toeplab.train.schedule"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"
local train = require "toeplab.train"

local reference = { tolerance = 1e-5, parameter_tolerance = 1e-4 }

-- The domain of the coefficients of each kind of case; a case concerns only the backends of its
-- domain. A kind without a domain, such as attention, has no operator and is run once.
local domains = {
  time = "lag", tno = "lag", tno_multi = "lag", layer = "lag", train = "lag",
  fd_causal = "frequency", fd_bidir = "frequency", ski = "warp",
}

-- ---- Kinds --------------------------------------------------------------------------------------
-- Runners by kind of case: functions of a case and a backend's name that return {{name=, error=,
-- tolerance=}, ...}, or nil and why the case does not concern the backend.

local kinds = {}

-- Returns an operator, or nil and why the backend refuses the problem or an option.
local function operator(backend, n, d, causal, options)
  local ok, o = pcall(core.tno, backend, n, d, causal, options)
  if ok then return o end
  if o.status == "EBACKEND" or (options and o.status == "EINVAL") then
    return nil, errors.text(o)
  end
  error(o, 0)
end

-- Returns the helpers that the kinds of operators share. read(name) returns the case's tensor of
-- that name as a leaf; compare(name, got) adds a result; run(o, coef, params) applies o to x,
-- backpropagates dy, compares y and the gradient of each leaf, and returns all results.
local function probe(case)
  local results, leaves = {}, {}
  local b = { results = results }
  function b.read(name)
    leaves[#leaves + 1] = name
    leaves[name] = case:read(name):require_grad()
    return leaves[name]
  end
  function b.compare(name, got)
    results[#results + 1] = { name = name, error = distance(got, case:read(name)) }
  end
  function b.run(o, coef, params)
    local y = o:apply(coef, params, b.read "x");
    (y * case:read "dy"):sum():backward()
    b.compare("y", y)
    for _, name in ipairs(leaves) do b.compare("d" .. name, leaves[name]:grad()) end
    return results
  end
  return b
end

local function sizes(case)
  local x = case:read "x"
  return x:dim(2), x:dim(3)
end

function kinds.time(case, backend)
  local a, b = case.attributes, probe(case)
  local n, d = sizes(case)
  local o, why = operator(backend, n, d, a.causal)
  if not o then return nil, why end
  local t = b.read "t"
  local coef = a.causal and t:narrow(1, n, n) or t
  if a.gamma and a.gamma >= 0 then
    coef = core.decay(coef, o:points(), core.full({ d }, a.gamma))
  end
  return b.run(o, coef, {})
end

-- The kernel is column 0 of T.
function kinds.fd_causal(case, backend)
  local b = probe(case)
  local n, d = sizes(case)
  local o, why = operator(backend, n, d, true)
  if not o then return nil, why end
  local spec = b.read "spec"
  b.run(o, spec, {})
  b.compare("kernel", o:dense(spec, {}):narrow(3, 1, 1):reshape(d, n):transpose(1, 2))
  return b.results
end

function kinds.fd_bidir(case, backend)
  local b = probe(case)
  local n, d = sizes(case)
  local o, why = operator(backend, n, d, false)
  if not o then return nil, why end
  return b.run(o, core.concat({ b.read "re", b.read "im" }, 2), {})
end

-- Returns the matrix [p,g] of linear interpolation at points between g equidistant nodes of [-1,1].
-- The middle of the table (x = 0, an infinite lag) is skipped, since the kernel is 0 there.
local function interpolation(points, g)
  local rows = {}
  for i, x in ipairs(points:totable()) do
    local place = (x + 1) / 2 * (g - 1)
    local node = math.min(place // 1 | 0, g - 2)
    rows[i] = {}
    for k = 0, g - 1 do
      local weight = k == node and node + 1 - place or k == node + 1 and place - node or 0
      rows[i][k + 1] = 2 * k == g - 1 and 0 or weight
    end
  end
  return core.tensor(rows)
end

function kinds.ski(case, backend)
  local a, b = case.attributes, probe(case)
  local n, d = sizes(case)
  local o, why = operator(backend, n, d, false, {
    inducing = a.r, taps = a.m, lambda = a.lam, span = a.inducing, zero = a.zero,
  })
  if not o then return nil, why end
  local table_, taps = b.read "table", b.read "taps"
  local places = interpolation(o:points(), table_:dim(1))
  return b.run(o, core.matmul(places, table_), { taps })
end

local function dictionary(case, group)
  local dict = {}
  for _, name in ipairs(case:children(group)) do dict[name] = case:read(group .. "/" .. name) end
  return dict
end

-- Builds the module of the case with its parameters, or returns nil and why the backend refuses it.
local function module_of(case, kind, backend)
  local ok, module = pcall(published.module, kind, case.attributes, dictionary(case, "param"),
    { backend = backend })
  if ok then return module end
  if type(module) == "table" and module.status == "EBACKEND" then
    return nil, errors.text(module)
  end
  error(module, 0)
end

-- Converts x [b,h,n,w] <-> [b,n,h w], with heads first among the channels.
local function merge_heads(x)
  local s = x:shape()
  return x:permute { 1, 3, 2, 4 }:reshape(s[1], s[3], s[2] * s[4])
end

local function run_module(case, kind, backend, merge)
  local module, why = module_of(case, kind, backend)
  if not module then return nil, why end
  local x = merge(case:read "x"):clone()
  x:require_grad()
  local y = module(x);
  (y * merge(case:read "dy")):sum():backward()
  local results = {
    { name = "y", error = distance(y, merge(case:read "y")) },
    { name = "dx", error = distance(x:grad(), merge(case:read "dx")) },
  }
  local function ours(name) return published.ours(kind, name) end
  module_case.gradients(case, module, ours, results)
  return results
end

function kinds.tno(case, backend)
  return run_module(case, "tno", backend, merge_heads)
end

function kinds.tno_multi(case, backend)
  return run_module(case, "tno_multi", backend, merge_heads)
end

function kinds.layer(case, backend)
  return run_module(case, "layer", backend, function(x) return x end)
end

-- Returns the largest elementwise relative error of a series.
local function series_error(got, want)
  local worst = 0.0
  for i, w in ipairs(want:totable()) do
    local e = math.abs(got[i] - w) / math.max(math.abs(w), 1e-30)
    worst = e == e and math.max(worst, e) or math.huge
  end
  return worst
end

function kinds.train(case, backend)
  local a = case.attributes
  local model, why = module_of(case, "train", backend)
  if not model then return nil, why end
  local opt = optim.adam(model, {
    kind = "fairseq", lr = a.lr, betas = { a.beta1, a.beta2 }, eps = a.eps, clip = a.clip + 0.0,
    weight_decay = a.weight_decay, schedule = "inverse_sqrt", warmup = a.warmup,
    warmup_init_lr = a.warmup_init_lr,
  })
  train.graph(model, opt)
  local ids, series = case:read "ids", { loss = {}, grad_norm = {}, lr = {} }
  for step = 1, a.steps do
    local batch = ids:narrow(1, step, 1):reshape(ids:dim(2), ids:dim(3))
    local loss, info = train.lm_step(model, opt, batch)
    series.loss[step], series.grad_norm[step], series.lr[step] = loss, info.grad_norm, info.lr
  end
  local results, worst, named = {}, 0.0, model:named()
  for _, name in ipairs { "loss", "lr", "grad_norm" } do
    results[#results + 1] = { name = name, error = series_error(series[name], case:read(name)),
      tolerance = name == "grad_norm" and reference.parameter_tolerance or nil }
  end
  for _, name in ipairs(case:children "final") do
    local own = named[published.ours("train", name)]
    worst = math.max(worst, distance(own, case:read("final/" .. name)))
  end
  results[#results + 1] = { name = "final", error = worst,
    tolerance = reference.parameter_tolerance }
  return results
end

-- Runs a schedule of the published runs: w updates of warm-up, T updates in all. The published
-- cosine continues after the end.
function kinds.schedule(case)
  local a, lists, results = case.attributes, { lr = {}, beta1 = {} }, {}
  local given = { lr = a.lr_max, warmup = a.warmup, steps = a.total }
  local rate = a.schedule == "one_cycle" and schedule.one_cycle(given)
  if not rate then
    given.wraps = true
    rate = schedule.cosine(given)
  end
  for step = 1, a.steps do lists.lr[step], lists.beta1[step] = rate(step) end
  for _, name in ipairs(case:children "") do
    results[#results + 1] = { name = name,
      error = distance(core.tensor(lists[name]), case:read(name)) }
  end
  return results
end

-- ---- Files --------------------------------------------------------------------------------------

local Case = {}
Case.__index = Case

function Case:read(name) return self.file:read("/" .. self.name .. "/" .. name) end

-- Returns the names of the datasets in a group of the case.
function Case:children(group)
  local names = {}
  for _, child in ipairs(self.file:children("/" .. self.name .. "/" .. group)) do
    names[#names + 1] = child.name
  end
  return names
end

local booleans = { causal = true, tied = true }

local function attributes(file, name)
  local a, prefix = file:attrs("/" .. name), name .. "/"
  for key, value in pairs(file:attrs "/") do -- flattened as core.h5_write writes them
    if key:sub(1, #prefix) == prefix then a[key:sub(#prefix + 1)] = value end
  end
  for key, value in pairs(a) do
    if booleans[key] then a[key] = value ~= 0 end
  end
  if a.kind ~= "time" and a.gamma and a.gamma < 0 then a.gamma = "none" end
  return a
end

local function runner(kind) return kinds[kind] or mixers[kind] end

local function run_case(case, backend)
  local ok, results, why = pcall(runner(case.attributes.kind), case, backend)
  core.tape_clear()
  if not ok then return { { name = "run", error = math.huge, why = errors.text(results) } } end
  return results, why
end

-- Returns the domain of a backend's coefficients; nil if it accepts no problem at all.
local function domain(backend)
  for _, causal in ipairs { true, false } do
    local o = operator(backend, 2, 1, causal)
    if o then return o:domain() end
  end
end

local function all_domains(begin)
  local list = {}
  for _, backend in ipairs(core.backends()) do
    begin(backend.name)
    list[backend.name] = domain(backend.name)
  end
  return list
end

-- Returns why no backend at all can run a case of this kind; nil if one can.
local function no_backend(kind, of)
  if not runner(kind) then return ("kind '%s' is unknown"):format(tostring(kind)) end
  if not domains[kind] then return nil end
  for _, own in pairs(of) do
    if own == domains[kind] then return nil end
  end
  return ("no backend here takes coefficients by %s"):format(domains[kind])
end

-- Runs a case on each backend of its domain; calls the functions as described at reference.run.
local function ask(case, backends, of, found, apart, begin)
  local kind, asked = case.attributes.kind, false
  local missing = no_backend(kind, of)
  if missing then return found(case.name, kind, nil, nil, missing) end
  if not domains[kind] then
    begin(nil)
    return found(case.name, kind, "-", run_case(case))
  end
  for _, backend in ipairs(backends) do
    if not of[backend] or of[backend] == domains[kind] then
      asked = true
      begin(backend)
      found(case.name, kind, backend, run_case(case, backend))
    end
  end
  if not asked then apart(case.name, kind, domains[kind]) end
end

-- Runs the cases of the file at path, each on the backends whose domain matches. found(name, kind,
-- backend, results, why) is called for each run; if the case is skipped, results is nil and why is
-- the reason. apart(name, kind, domain) is called for a case that none of the backends can run,
-- begin(backend) before a backend is queried or runs, begin(nil) before a case that uses no single
-- backend.
function reference.run(path, backends, found, apart, begin)
  local opened, file_or_why = pcall(core.h5_open, path)
  if not opened then errors.usage("%s", errors.text(file_or_why)) end
  local file <close> = file_or_why
  local of = all_domains(begin)
  for _, child in ipairs(file:children("/")) do
    if child.kind == "group" then
      local case = setmetatable({ file = file, name = child.name }, Case)
      case.attributes = attributes(file, child.name)
      ask(case, backends, of, found, apart, begin)
      collectgarbage()
    end
  end
end

reference.distance = distance

return suggest.strict("reference", reference)
