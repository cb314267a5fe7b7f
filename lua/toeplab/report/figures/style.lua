-- report/figures/style.lua: options for the look of a figure, shared by the commands that draw one,
-- and the file that it is written to.
local errors = require "toeplab.base.errors"
local gnuplot = require "toeplab.report.figures.gnuplot"
local plot = require "toeplab.report.figures.plot"

local style = {}

style.options = {
  { name = "title", value = "TEXT", help = "above the figure; '' for none",
    more = [[
      By default the experiment's `title` or its name, with a description of means and bands;
      with `--size` none, and this is printed as a caption instead. The experiment's `label`
      names lines, axes and words; toeplab-lua(7) explains it.]] },
  { name = "xlabel", value = "TEXT", help = "below the x axis" },
  { name = "ylabel", value = "TEXT", help = "beside the y axis, or a matrix's colours" },
  { name = "size", value = "WxH",
    help = "width and height of the figure in inches, like 3.25x2.2",
    more = "A PNG then has 300 pixels an inch. By default the size depends on the content." },
  { name = "font", value = "FAMILY,SIZE",
    help = "font of all text, size in points, like Times,8; or one of the two",
    more = "By default sans-serif, with `--size` 9 points. Text stays text in SVG and PDF." },
  { name = "output", short = "o", value = "FILE", writes = true,
    help = "FILE.svg, FILE.png or FILE.pdf" },
}

-- Returns the width and the height in inches of --size; nil without it.
local function size_of(command, text)
  if not text then return nil end
  local width, height = text:match "^(%d*%.?%d+)x(%d*%.?%d+)$"
  width, height = tonumber(width), tonumber(height)
  if not gnuplot.drawable_inches(width) or not gnuplot.drawable_inches(height) then
    errors.usage("%s: --size takes inches like 3.25x2.2, each 0.5 to 100, got '%s'", command, text)
  end
  return { width, height }
end

-- Raises a usage error for invalid options.
function style.check(command, set)
  size_of(command, set.size)
  local ok, why = gnuplot.font(set.font)
  if not ok then errors.usage("%s: --font: %s", command, why) end
  if set.output and not gnuplot.kind(set.output) then
    errors.usage("%s: --output %s: its name must end in .svg, .png or .pdf", command, set.output)
  end
end

-- Applies the options to a spec (plot.lua) and each of its panels. caption: the title without
-- --title.
function style.apply(command, set, spec, caption)
  -- Papers have captions instead of titles.
  spec.title = set.title or not set.size and caption or nil
  spec.size, spec.font = size_of(command, set.size), set.font
  for _, panel in ipairs(spec.panels or { spec }) do
    local up = panel.matrix and "zlabel" or "ylabel"
    panel.xlabel, panel[up] = set.xlabel or panel.xlabel, set.ylabel or panel[up]
  end
end

-- Draws spec into the file at path and prints path, and the caption if the figure has no title.
-- quiet: prints nothing, because standard output has a table.
function style.draw(command, spec, path, caption, quiet)
  local drawn, why, _, status = plot.svg(path, spec)
  if not drawn then errors.raise(errors.code_of(status), "%s: %s", command, why) end
  if quiet then errors.say("%s", path) else print(path) end
  if not spec.title then errors.say("caption: %s", caption) end
end

return style
