-- examples.lua: takes batches of synthetic tasks apart, and compares counts with a distribution,
-- for tests.
local examples = {}

-- Calls check(row, places, targets) for the rows of a batch, with places from 0 within the row.
function examples.rows(batch, check)
  local ids, places, targets = batch.ids:totable(), batch.places:totable(), batch.targets:totable()
  local n, rows = #ids[1], {}
  for i in ipairs(ids) do rows[i] = { places = {}, targets = {} } end
  for i, place in ipairs(places) do
    local row = rows[place // n + 1]
    table.insert(row.places, place % n)
    table.insert(row.targets, targets[i])
  end
  for i, row in ipairs(ids) do check(row, rows[i].places, rows[i].targets) end
end

-- Calls check(row, places, targets) for all examples of the part "valid" or "test".
function examples.part(task, part, check)
  for batch in task:each(part, 500) do examples.rows(batch, check) end
end

-- Calls check(row, places, targets) for `count` examples to train with.
function examples.train(task, count, check)
  local size = task.options.batch
  for step = 1, count // size do examples.rows(task:batch(step), check) end
end

-- Returns the texts of all examples of an epoch, sorted.
function examples.epoch(task, epoch)
  local list, steps = {}, task:steps()
  for step = (epoch - 1) * steps + 1, epoch * steps do
    examples.rows(task:batch(step), function(row, places, targets)
      list[#list + 1] = table.concat({ table.concat(row, " "), table.concat(places, " "),
        table.concat(targets, " ") }, "|")
    end)
  end
  table.sort(list)
  return list
end

function examples.tally(counts, key) counts[key] = (counts[key] or 0) + 1 end

-- Raises unless counts[least .. most] are as probable as chi-squared within 6 standard deviations
-- of its mean says, where probability(key) is that of each (default: all alike), and no other key
-- has a count.
function examples.fit(counts, least, most, probability)
  local total, chi, seen = 0, 0.0, 0
  for _, count in pairs(counts) do total = total + count end
  for key = least, most do
    local wanted = total * (probability and probability(key) or 1 / (most - least + 1))
    local count = counts[key] or 0
    chi, seen = chi + (count - wanted) ^ 2 / wanted, seen + count
  end
  local free = most - least
  assert(seen == total, ("%d of %d are in %d..%d"):format(seen, total, least, most))
  assert(chi < free + 6 * math.sqrt(2 * free) + 6, ("chi-squared %.1f of %d"):format(chi, free))
end

return examples
