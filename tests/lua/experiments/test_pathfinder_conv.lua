-- test_pathfinder_conv.lua: the network of experiments/pathfinder-conv.lua classifies held-out
-- images of both sizes far better than the distance between the disks does. It takes minutes (label
-- long).
local t = require "harness"
local core = require "toeplab.core"
local trials = require "trials"

local BINS = 16 -- of the distance between the disks
local MARGIN = 0.1 -- more than 8 standard errors of an accuracy on 2,000 images

local script = t.root .. "experiments/pathfinder-conv.lua"

-- Returns the accuracy of always taking the label that is more frequent at a distance between the
-- disks. The labels are counted on the same images, so that it is a little too high.
local function accuracy_by_distance(size, count)
  local _ <close>, labels, facts = core.pathfinder { size = size, seed = 3, count = count }
  local ones, all, right = {}, {}, 0
  labels = labels:totable()
  for i, fact in ipairs(facts:totable()) do
    local distance = math.sqrt((fact[1] - fact[3]) ^ 2 + (fact[2] - fact[4]) ^ 2)
    local bin = distance * BINS // size
    ones[bin], all[bin] = (ones[bin] or 0) + labels[i], (all[bin] or 0) + 1
  end
  for bin, number in pairs(all) do right = right + math.max(ones[bin], number - ones[bin]) end
  return right / count
end

for _, case in ipairs { { size = 32, words = "", count = 20000 },
  { size = 128, words = "scale=path-x", count = 2000 } } do
  t.test(("%dx%d: contours of held-out images are followed"):format(case.size, case.size),
    function()
      t.in_folder(function(folder)
        local said, code = t.shell(("'%s' run -q -C '%s/results' '%s' %s 2>&1"):format(
          core.sys.executable(), folder, script, case.words))
        t.eq(code, 0)
        local accuracy = trials.query(folder,
          "SELECT value FROM v_last WHERE name = 'test_accuracy'")[1].value
        local chance = accuracy_by_distance(case.size, case.count)
        print(("accuracy %.4f, by the distance between the disks %.4f"):format(accuracy, chance))
        t.ok(chance >= 0.5 and accuracy > chance + MARGIN, said)
      end)
    end)
end

t.done()
