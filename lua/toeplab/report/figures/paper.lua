-- report/figures/paper.lua: the options of commands that draw a figure which say how it looks, and
-- the file that it becomes.
local errors = require "toeplab.base.errors"
local gnuplot = require "toeplab.report.figures.gnuplot"
local plot = require "toeplab.report.figures.plot"

local paper = {}

paper.options = {
  { name = "title", value = "TEXT", help = "above the figure; '' for none",
    more = [[
      By default the experiment's `title` or its name, with what means and bands are; with `--size`
      none, and this is printed as a caption instead. Lines, axes and words are named by the
      experiment's `label`, which docs/reference/experiments.md explains.]] },
  { name = "xlabel", value = "TEXT", help = "below the x axis" },
  { name = "ylabel", value = "TEXT", help = "beside the y axis, or a matrix's colours" },
  { name = "size", value = "WxH",
    help = "width and height of the figure in inches, like 3.25x2.2",
    more = "A PNG then has 300 pixels an inch. By default the size follows from what is drawn." },
  { name = "font", value = "FAMILY,SIZE",
    help = "of all text, in points, like Times,8; or one of the two",
    more = "By default sans-serif, of 9 points with `--size`. Text stays text in SVG and PDF." },
  { name = "output", short = "o", value = "FILE", writes = true,
    help = "FILE.svg, FILE.png or FILE.pdf" },
}

-- Returns the width and the height in inches that --size says; nil without it.
local function size_of(command, text)
  if not text then return nil end
  local width, height = text:match "^(%d*%.?%d+)x(%d*%.?%d+)$"
  width, height = tonumber(width), tonumber(height)
  if not gnuplot.drawable_inches(width) or not gnuplot.drawable_inches(height) then
    errors.usage("%s: --size takes inches like 3.25x2.2, each 0.5 to 100, got '%s'", command, text)
  end
  return { width, height }
end

-- Raises a usage error if the options cannot be meant.
function paper.check(command, set)
  size_of(command, set.size)
  local ok, why = gnuplot.font(set.font)
  if not ok then errors.usage("%s: --font: %s", command, why) end
  if set.output and not gnuplot.kind(set.output) then
    errors.usage("%s: --output %s: its name must end in .svg, .png or .pdf", command, set.output)
  end
end

-- Applies the options to a spec (plot.lua) and each of its panels. caption: the title that it has
-- without --title.
function paper.apply(command, set, spec, caption)
  -- Papers have captions instead of titles.
  spec.title = set.title or not set.size and caption or nil
  spec.size, spec.font = size_of(command, set.size), set.font
  for _, panel in ipairs(spec.panels or { spec }) do
    local up = panel.matrix and "zlabel" or "ylabel"
    panel.xlabel, panel[up] = set.xlabel or panel.xlabel, set.ylabel or panel[up]
  end
end

-- Draws spec into the file at path and prints path, and the caption if the figure has no title.
-- quiet: prints nothing to standard output, which has a table.
function paper.draw(command, spec, path, caption, quiet)
  local drawn, why, _, status = plot.svg(path, spec)
  if not drawn then errors.raise(errors.code_of(status), "%s: %s", command, why) end
  if quiet then errors.say("%s", path) else print(path) end
  if not spec.title then errors.say("caption: %s", caption) end
end

return paper
