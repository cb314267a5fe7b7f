-- test_exported.lua: tables for other programs, and what rm counts.
local t = require "harness"
local sweeps = require "sweeps"

local function two_experiments(folder)
  for i, name in ipairs { "mixers", "topics" } do
    local list = {}
    for seed = 1, i do
      list[seed] = { config = { steps = 3 }, seed = seed, metrics = { loss = i } }
    end
    sweeps.write(folder, { experiment = name, axes = {}, trials = list, source = name })
  end
end

t.test("rm and rm --restore count the trials of each experiment", function()
  t.in_folder(function(folder)
    two_experiments(folder)
    local function rm(words) return (t.toeplab(("rm %s -C '%s'"):format(words, folder))) end
    t.holds(rm "steps=3 -n", "3 trials (1 of mixers, 2 of topics), 0 files, 0 B would be moved")
    t.holds(rm "topics steps=3", "2 trials of topics, 0 files, 0 B moved to the trash")
    t.holds(rm "steps=3", "1 trial of mixers, 0 files, 0 B moved to the trash")
    t.eq(rm "--restore steps=3 -n", "3 trials (1 of mixers, 2 of topics) would be restored\n")
    t.eq(rm "--restore @last", "1 trial of mixers restored\n")
    t.eq(rm "--restore topics", "2 trials of topics restored\n")
  end)
end)

t.test("export refuses a file whose name promises another format", function()
  t.in_folder(function(folder)
    two_experiments(folder)
    local function export(name)
      local text, code, said = t.toeplab(("export mixers -C '%s' -o '%s/%s'"):format(folder, folder,
        name))
      return { text, code, said:gsub(folder, "X") .. "" }
    end
    t.eq(export "a.xlsx", { "", 2, "toeplab: export: --output 'X/a.xlsx': export writes CSV, or "
      .. "JSON with --json; name the file X/a.csv, which spreadsheets open\n" })
    t.eq(export "A.ODS"[2], 2)
    t.eq(export "a.csv", { "", 0, "" })
    t.holds(t.read(folder .. "/a.csv"), ",started,started_at,seconds,")
  end)
end)

t.test("export writes the time of the start as a date too", function()
  t.in_folder(function(folder)
    two_experiments(folder)
    local records = require "toeplab.store.records"
    do
      local store <close> = records.open(folder, "w")
      store:rows "UPDATE trials SET started = 1000000000.5"
    end
    local text = t.toeplab(("export mixers --json -C '%s'"):format(folder))
    t.holds(text, '"started":1000000000.5', '"started_at":"2001-09-09 01:46:40"')
  end)
end)

t.done()
