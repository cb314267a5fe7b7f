-- test_learning_curves.lua: two settings compared along the training.
local t = require "harness"
local sweeps = require "sweeps"

t.test("--by step compares the curves and reports where they cross", function()
  t.in_folder(function(folder)
    local list = {}
    for seed = 1, 4 do -- a is better up to step 20, b from there on; seeds differ by little
      local a, b = {}, {}
      for step = 1, 40 do
        a[step], b[step] = 10 - step / 8 + seed / 100, 15 - 3 * step / 8 + seed % 2 / 50
      end
      list[2 * seed - 1] = { config = { op = "a" }, seed = seed, curves = { loss = a } }
      list[2 * seed] = { config = { op = "b" }, seed = seed, curves = { loss = b } }
    end
    list[1].status, list[2].curves = "failed", nil
    sweeps.write(folder, { experiment = "e", axes = { "op" }, columns = { "loss" }, trials = list })
    local text = t.toeplab(("compare e op=a op=b --by step -C '%s'"):format(folder))
    t.holds(text, "\nstep 1 to 4        3 ", "\nstep 37 to 40      3 ", "op=b and op=a cross near "
      .. "step 20, after which op=b is better; each of them is claimed to be better in some rows",
      "2 trials are left out")
    t.eq(select(2, text:gsub("\nstep", "")), 10)
    t.eq(text:find("undecided", 1, true) or text:find("overall", 1, true), nil)
    t.holds(t.toeplab(("compare e op=a op=b --by step --csv -C '%s'")
      :format(folder)), "\nstep 5 to 8,3,")
  end)
end)

t.test("a trial that a guard ended has diverged in all parts", function()
  t.in_folder(function(folder)
    local list = {}
    for seed = 1, 3 do
      for i, op in ipairs { "a", "b" } do
        local curve = {}
        for step = 1, seed == 3 and op == "b" and 8 or 20 do
          curve[step] = 10 - 3 * i - step / 8 + seed * i / 50
        end
        list[#list + 1] = { config = { op = op }, seed = seed, curves = { loss = curve },
          ended = #curve < 20 and "guard" or nil }
      end
    end
    sweeps.write(folder, { experiment = "e", axes = { "op" }, columns = { "loss" }, trials = list })
    local text = t.toeplab(("compare e op=a op=b --by step -C '%s'"):format(folder))
    t.holds(text, "\nstep 19 to 20      2 ", "1 trial of these diverged", "neither is claimed")
  end)
end)

t.done()
