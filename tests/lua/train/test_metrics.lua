-- test_metrics.lua: tl.metrics against scikit-learn 1.9.1 and SciPy 1.17.1, whose answers to the
-- lists below are written beside them: accuracy_score(y, p), f1_score(y, p), matthews_corrcoef(y,
-- p), pearsonr(p, y) and spearmanr(p, y), with warnings off.
local t = require "harness"
local tl = require "toeplab"

-- Each row: predictions, labels, accuracy, F1 (nil: more than two classes), Matthews.
local classes = {
  { { 1, 0, 1, 1, 0, 0, 1, 0, 1, 1 }, { 1, 0, 0, 1, 0, 1, 1, 1, 1, 0 }, 0.6, 0.6666666666666666,
    0.16666666666666666 },
  { { 1, 1, 1, 1 }, { 1, 1, 0, 1 }, 0.75, 0.8571428571428571, 0.0 }, -- one class is ever said
  { { 0, 0, 0 }, { 1, 0, 1 }, 0.3333333333333333, 0.0, 0.0 },
  { { 0, 0, 0 }, { 0, 0, 0 }, 1.0, 0.0, 0.0 },                       -- there is one class only
  { { 1, 1, 1 }, { 1, 1, 1 }, 1.0, 1.0, 0.0 },
  { { 1, 0, 1, 0 }, { 0, 1, 0, 1 }, 0.0, 0.0, -1.0 },
  { { 0, 1, 2, 2, 1, 0, 1, 2 }, { 0, 2, 2, 1, 1, 0, 0, 2 }, 0.625, nil, 0.4523809523809524 },
}

t.test("accuracy, F1 and Matthews", function()
  for i, row in ipairs(classes) do
    local said, labels = row[1], row[2]
    t.eq(tl.metrics.accuracy(said, labels), row[3], 1e-12)
    if row[4] then t.eq(tl.metrics.f1(said, labels), row[4], 1e-12) end
    t.ok(math.abs(tl.metrics.matthews(said, labels) - row[5]) < 1e-12, i)
  end
end)

-- Each row: predictions, labels, Pearson, Spearman; "nan" where one list is constant.
local numbers = {
  { { 1, 2, 3, 4, 5, 6, 7 }, { 10, 9, 2.5, 6, 4, 3, 2 }, -0.8285038835884277,
    -0.7857142857142859 },
  { { 1, 2, 3, 4, 5 }, { 5, 6, 7, 8, 7 }, 0.8320502943378436, 0.8207826816681233 }, -- a tie
  { { 0.1, 0.4, 0.4, 0.9, 0.2, 0.4 }, { 1.0, 3.0, 2.0, 5.0, 1.0, 1.0 }, 0.9056668257034524,
    0.8064516129032258 },                                                          -- three of one
  { { 3, 3, 1, 1 }, { 0, 1, 0, 1 }, 0.0, 0.0 },
  { { 1.0, 2.0 }, { 3.0, 1.0 }, -1.0, -1.0 },
  { { 1e-200, 3e-200, 2e-200 }, { 1, 2, 3 }, 0.5, 0.5 },
  { { 1e200, 3e200, 2e200 }, { 1, 2, 3 }, 0.5, 0.5 },
  { { 2, 2, 2 }, { 1, 2, 3 }, "nan", "nan" },
  { { 1, 2, 3 }, { 4, 4, 4 }, "nan", "nan" },
}

t.test("Pearson and Spearman", function()
  for i, row in ipairs(numbers) do
    for k, name in ipairs { "pearson", "spearman" } do
      local got, want = tl.metrics[name](row[1], row[2]), row[2 + k]
      local same = want == "nan" and got ~= got or want ~= "nan" and math.abs(got - want) < 1e-12
      t.ok(same, ("%s of row %d: %s"):format(name, i, got))
    end
  end
  for _, name in ipairs { "pearson", "spearman" } do
    for _, lists in ipairs { { { 1, 0 / 0, 3 }, { 1, 2, 3 } }, { { 1, 2, 3 }, { 1, 0 / 0, 3 } },
      { { 0 / 0, 0 / 0 }, { 0, 1 } } } do
      local nan = tl.metrics[name](table.unpack(lists))
      t.ok(nan ~= nan, ("%s: %s"):format(name, nan))
    end
  end
end)

t.test("a class that is NaN is an error", function()
  t.raises(tl.metrics.matthews, "metrics.matthews: class 2 of the list is NaN", { 1, 0 / 0 },
    { 1, 0 })
end)

t.test("lists of unequal length, and empty ones, are errors", function()
  for _, name in ipairs { "accuracy", "f1", "matthews", "pearson", "spearman" } do
    t.raises(tl.metrics[name], ("metrics.%s: 2 predictions for 3 labels"):format(name), { 1, 2 },
      { 1, 2, 3 })
    t.raises(tl.metrics[name], ("metrics.%s: 0 predictions for 0 labels"):format(name), {}, {})
  end
end)

t.test("Matthews correlation of very many labels does not overflow", function()
  local said, labels = {}, {}
  for i = 1, 100000 do said[i], labels[i] = i % 2, i % 2 end
  t.eq(tl.metrics.matthews(said, labels), 1.0, 1e-12)
end)

t.done()
