-- test_figures.lua: the experiments that answer figures of the papers, at scale smoke: they fill
-- the cells of the figures, and draw.
local t = require "harness"
local core = require "toeplab.core"
local frames = require "toeplab.report.frames"
local published_tables = require "toeplab.trials.published_tables"
local runner = require "toeplab.runs.runner"
local smoke = require "smoke"
local tables = require "toeplab.report.tables"

-- Fills a published table or figure from a store; returns a function (row, column) -> its cell.
local function filled(store, id)
  local result = tables.fill(published_tables.read(id), frames.find(store, "answers", id, {}))
  return function(row, column)
    for _, r in ipairs(result.rows) do
      for c, cell in ipairs(r.name == row and r.cells or {}) do
        if result.columns[c].id == column then return cell end
      end
    end
    error(("%s has no cell %s/%s"):format(id, row, column))
  end
end

-- Returns the SVG that the command which draws a figure makes of the trials of a store.
local function drawn(store, id, more)
  local path = store.folder .. "/drawn.svg"
  local command = ("'%s' %s %s -C '%s' -o '%s' >/dev/null"):format(core.sys.executable(),
    published_tables.read(id).draw, more or "", store.folder, path)
  t.ok(os.execute(command), command)
  return t.read(path)
end

t.test("tnn-table2 fills the rows of Table 15 and Figure 7a, and draws both", function()
  local text = ("the old man told the moon a tale of the young sea .\n"):rep(1200)
  smoke("tnn-table2", { "seeds=1", "steps=2", "lengths=16,32,256", "corpus=text:" .. text,
    "model=tnn,fd,alibi,transformer" }, function(store)
    for _, row in ipairs { "TNN", "ALiBi", "Transformer" } do
      for _, column in ipairs { "512", "1024", "8192" } do -- 1, 2 and 16 times the training length
        local cell = filled(store, "tnn/figure1b")(row, column)
        t.ok(cell.interval and cell.interval.mean > 1, row)
        t.eq(type(cell.paper), "number")
      end
    end
    t.ok(filled(store, "ski/figure7a")("FD-TNN", "1024").interval)
    t.eq(filled(store, "ski/figure7a")("FD-TNN", "1024").paper, "drawn")
    t.ok(drawn(store, "tnn/figure1b"):find ">model=alibi<")
    local svg = drawn(store, "ski/figure7a")
    t.ok(svg:find ">model=fd<" and not svg:find ">model=alibi<")
  end)
end)

t.test("lra-speed at scale smoke: both models beside TNN on each task", function()
  smoke("lra-speed", {}, function(store)
    for _, row in ipairs { "SKI-TNN, Text", "SKI-TNN, ListOps", "SKI-TNN, Retrieval",
      "FD-TNN, Text", "FD-TNN, ListOps", "FD-TNN, Retrieval" } do
      t.ok(filled(store, "ski/figure1a")(row, "speedup").interval, row)
      t.ok(filled(store, "ski/figure1a")(row, "memory").interval.mean > 0, row)
    end
    local rows = store:rows [[SELECT a.value AS tnn, b.value AS model, c.value AS faster
      FROM v_last a JOIN v_last b USING (trial) JOIN v_last c USING (trial)
      WHERE a.name = 'tnn_steps_per_second' AND b.name = 'steps_per_second'
      AND c.name = 'speedup_percent']]
    t.eq(#rows, 6)
    for _, row in ipairs(rows) do t.eq(row.faster, 100 * (row.model / row.tnn - 1), 1e-6) end
  end)
end)

t.test("lra fills the scores of both figures 1a, with memory and speed, and draws them", function()
  smoke("lra", { "seeds=2", "task=listops,pathfinder", "model=tnn,ski,fd,performer" },
    function(store)
      for _, row in ipairs { "SKI-TNN, ListOps", "FD-TNN, ListOps" } do
        local accuracy = filled(store, "ski/figure1a")(row, "accuracy")
        t.ok(accuracy.interval.mean >= 0 and accuracy.interval.mean <= 100, row)
        t.ok(filled(store, "ski/figure1a")(row, "memory").interval.mean > 0, row)
      end
      for _, row in ipairs { "TNN", "Performer" } do
        local score = filled(store, "tnn/figure1a")(row, "score")
        t.eq(score.asked, 4) -- two tasks of two seeds: a value for each seed
        t.eq(#score.values, 2)
      end
      t.eq(filled(store, "tnn/figure1a")("TNN", "speed").asked, 0) -- Text was not run
      local page = t.toeplab(("table tnn/table14 -C '%s'"):format(store.folder)):gsub("%s+", " ")
      t.ok(page:find("layers 4 or 6, here 2;", 1, true), page) -- ListOps 4, Pathfinder 6
      t.ok(page:find("steps 250000 or 30000, here 4", 1, true), page)
      local svg = drawn(store, "ski/figure1a")
      for _, text in ipairs { "task=listops", "task=pathfinder", "test_accuracy", "peak_mib",
        "model=fd" } do
        t.ok(svg:find(text, 1, true), text)
      end
      t.ok(not svg:find("model=performer", 1, true))
    end)
end)

t.test("ski-speed fills three figures, and its percentages are those of its times", function()
  smoke("ski-speed", { "lengths=512,2048", "batch=1" }, function(store)
    local rows = store:rows [[SELECT a.value AS tnn, b.value AS model, c.value AS faster,
      d.value AS saved FROM v_last a JOIN v_last b USING (trial) JOIN v_last c USING (trial)
      JOIN v_last d USING (trial) WHERE a.name = 'tnn_step_seconds@512'
      AND b.name = 'step_seconds@512' AND c.name = 'speedup_percent@512'
      AND d.name = 'time_saved_percent@512']]
    t.eq(#rows, 6)
    for _, row in ipairs(rows) do
      t.eq(row.faster, 100 * (row.tnn / row.model - 1), 1e-6)
      t.eq(row.saved, 100 * (1 - row.model / row.tnn), 1e-6)
    end
    for _, row in ipairs(published_tables.read("ski/figure1b").rows) do
      t.ok(filled(store, "ski/figure1b")(row[1], "speedup").interval, row[1])
    end
    for _, column in ipairs { "time512", "time2048", "memory512", "memory2048" } do
      t.ok(filled(store, "ski/figure10")("SKI-TNN", column).interval, column)
      local low = filled(store, "ski/figure11")("low rank", column).interval.mean
      t.ok(low > 0, column)
    end
    t.ok(filled(store, "ski/figure11")("low rank", "memory2048").interval.mean
      <= filled(store, "ski/figure11")("sparse and low rank", "memory2048").interval.mean)
    local text = t.read(store.folder .. "/figures/ski-speed-smoke.svg")
    t.ok(text:find "milliseconds a step" and text:find ">ski%-low%-rank<", text:sub(1, 200))
  end)
end)

t.test("the curves of Figures 7b to 9 and the matrices of Figure 3 are drawn as the list says",
  function()
    smoke("tnn-table2", { "seeds=1", "steps=4", "model=tnn,fd" }, function(store)
      t.ok(filled(store, "ski/table1")("FD-TNN: Ours, 3 layers", "test").interval)
      t.ok(filled(store, "ski/figure7b")("FD-TNN", "val").interval)
      t.ok(drawn(store, "ski/figure7b"):find ">model=fd<")
    end)
    smoke("mlm", { "seeds=1", "steps=4", "layers=2" }, function(store)
      t.ok(filled(store, "ski/figure8")("FD-TNN", "val").interval)
      t.ok(filled(store, "ski/figure9")("SKI-TNN", "val").interval)
      t.ok(drawn(store, "ski/figure8"):find ">model=ski<")
      local svg = drawn(store, "tnn/figure3")
      t.ok(svg:find ">layer 2<" and svg:find "T, mean over channels", #svg)
      svg = drawn(store, "tnn/figure3", "--channel 3 --channel 7")
      for _, title in ipairs { "layer 1, T of channel 3", "layer 2, T of channel 7" } do
        t.ok(svg:find(">" .. title .. "<", 1, true), title)
      end
    end)
  end)

t.test("what the experiments of speed cannot measure ends before any trial", function()
  for words, want in pairs { ["lra-speed shorter=0"] = "shorter must be at least 1",
    ["lra-speed shorter=1000"] = "shorter leaves 4 tokens, wanted at least 16",
    ["lra-speed model=tnn"] = "model: there is no row 'tnn' %(present: ski, fd%)",
    ["lra-speed task=text"] = "task: there is no row 'text' %(present: imdb, listops, retrieval%)",
    ["ski-speed model=fd"] = "model: there is no row 'fd' %(present: fd%-causal%-3",
    ["tnn-table2 model=hyena"] = "model: there is no row 'hyena' %(present: tnn, transformer" } do
    local list = {}
    for word in words:gmatch "%S+" do list[#list + 1] = word end
    t.in_folder(function(folder)
      t.raises(runner.run, want, ("../../experiments/%s.lua"):format(list[1]),
        { "scale=smoke", list[2] }, { dir = folder, out = io.stderr })
    end)
  end
end)

t.done()
