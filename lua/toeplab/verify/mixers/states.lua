-- verify/mixers/states.lua: runs the reference cases of state space layers.

local core = require "toeplab.core"
local distance = require("toeplab.verify.distance").distance
local mixers = require "toeplab.nn.mixers"
local module_case = require "toeplab.verify.module_case"

local states = {}

-- Returns case with further parameters, name -> tensor, beside those that it holds.
local function with_parameters(case, more)
  local proxy = { attributes = case.attributes }
  function proxy:children(group)
    local names = case:children(group)
    for name in pairs(group == "param" and more or {}) do names[#names + 1] = name end
    return names
  end
  function proxy:read(name)
    return more[name:match "^param/(.*)$"] or case:read(name)
  end
  return proxy
end

local function make(case, class, more)
  local a, o = case.attributes, { causal = case.attributes.causal, state = case.attributes.state }
  for name, value in pairs(more) do o[name] = value end
  return mixers.class(class)(a.dim, o)
end

local glu = { { "D", "kernel.skip" }, { "output_linear%.0%.(.*)", "o.%1" } }

local s4_names = {
  { "kernel%.kernel%.inv_w_real", "kernel.a" }, { "kernel%.kernel%.w_imag", "kernel.w" },
  { "kernel%.kernel%.log_dt", "kernel.log_dt" }, { "kernel%.kernel%.B", "kernel.b" },
  { "kernel%.kernel%.P", "kernel.p" }, { "kernel%.kernel%.C", "kernel.c" }, table.unpack(glu),
}

-- The case holds c as the first call left it. A second module starts from initial_C instead.
function states.s4(case)
  local a = case.attributes
  local o = { as_published = a.pairs == "half" }
  local loaded = with_parameters(case, { ["kernel.length"] = core.ids { a.kernel_length } })
  local results = module_case.run(loaded, make(case, "s4", o), s4_names)
  local fresh = make(case, "s4", o)
  module_case.load(with_parameters(case, { ["kernel.length"] = core.ids { 0 },
    ["kernel.kernel.C"] = case:read "initial_C" }), fresh, s4_names)
  core.no_grad(fresh.forward, fresh, core.zeros(1, a.kernel_length, a.dim))
  results[#results + 1] = { name = "C after the first call",
    error = distance(fresh.kernel.c, case:read "param/kernel.kernel.C") }
  return results
end

function states.s4d(case)
  return module_case.run(case, make(case, "s4d", { copies = case.attributes.copies }), {
    { "kernel%.kernel%.log_w_real", "kernel.a" }, { "kernel%.kernel%.w_imag", "kernel.w" },
    { "kernel%.kernel%.log_dt", "kernel.log_dt" }, { "kernel%.kernel%.C", "kernel.c" },
    table.unpack(glu) })
end

function states.dss(case)
  local module = make(case, "dss", { eps = case.attributes.eps, as_published = true })
  return module_case.run(case, module, {
    { "kernel%.Lambda", "kernel.lambda" }, { "kernel%.W", "kernel.w" }, { "D", "kernel.skip" },
    { "output_linear%.(.*)", "o.%1" } })
end

-- The two parts of C are one parameter of ours.
function states.gss(case)
  local a = case.attributes
  local function joined(group)
    local re, im = case:read(group .. "/dss.C_real"), case:read(group .. "/dss.C_imag")
    local s = re:shape()
    return core.concat({ re:reshape(s[1], s[2], 1), im:reshape(s[1], s[2], 1) }, 3)
  end
  local module = make(case, "gss", { expand = a.expand, inner = a.dss_dim })
  local results = module_case.run(with_parameters(case, {
    ["kernel.c"] = joined "param",
    ["kernel.skip"] = case:read("param/dss.param_D"):reshape(1, a.dss_dim),
  }), module, {
    { "dss%.C_%a+", false }, { "dss%.param_D", false }, { "dss%.Lambda_real", "kernel.a" },
    { "dss%.Lambda_imag", "kernel.w" }, { "dss%.norm%.(.*)", "inner_norm.%1" },
    { "to_u%.0%.(.*)", "u.%1" }, { "to_v%.0%.(.*)", "v.%1" }, { "to_gate%.(.*)", "g.%1" },
    { "to_out%.(.*)", "o.%1" },
  })
  for name, want in pairs { ["kernel.c"] = joined "grad",
    ["kernel.skip"] = case:read "grad/dss.param_D" } do
    results[#results + 1] = { name = "grad " .. name, grad = true,
      error = distance(module:named()[name]:grad(), want) }
  end
  return results
end

function states.selective_scan(case)
  local p, results = {}, {}
  for _, name in ipairs { "x", "delta", "z", "A", "B", "C", "D", "delta_bias" } do
    p[name] = case:read(name == "x" and name or "param/" .. name):require_grad()
  end
  local delta = core.softplus(p.delta + p.delta_bias)
  local y = core.selective_scan(p.x, delta, p.A, p.B, p.C, p.D) * core.silu(p.z);
  (y * case:read "dy"):sum():backward()
  module_case.compare(case, results, "y", y)
  module_case.compare(case, results, "dx", p.x:grad())
  for _, name in ipairs(case:children "grad") do
    results[#results + 1] = { name = "grad " .. name, grad = true,
      error = distance(p[name]:grad(), case:read("grad/" .. name)) }
  end
  return results
end

-- Our taps [taps,width] are in the order of the lags, the published ones [width,1,taps] in that of
-- the positions.
local function taps_of(weight)
  local count, ids = weight:dim(3), {}
  for k = 1, count do ids[k] = count - k end
  return weight:reshape(weight:dim(1), count):transpose(1, 2):gather(core.ids(ids))
end

function states.mamba(case)
  local a = case.attributes
  local module = make(case, "mamba", { expand = a.expand, taps = a.conv, dt_rank = a.dt_rank })
  local results = module_case.run(with_parameters(case, {
    ["conv.taps"] = taps_of(case:read "param/conv1d.weight"),
  }), module, {
    { "conv1d%.weight", false }, { "conv1d%.bias", "conv_bias" }, { "A_log", "a_log" },
    { "D", "skip" }, { "in_proj%.(.*)", "input.%1" }, { "x_proj%.(.*)", "choice.%1" },
    { "dt_proj%.weight", "step.weight" }, { "dt_proj%.bias", "step_bias" },
    { "out_proj%.(.*)", "o.%1" },
  })
  results[#results + 1] = { name = "grad conv1d.weight", grad = true,
    error = distance(module.conv.taps:grad(), taps_of(case:read "grad/conv1d.weight")) }
  return results
end

return states
