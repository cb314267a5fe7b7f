#!/bin/sh
# page.sh - tests toeplab plot and report, and opens the page in a browser: it must need no network,
# and its text must be visible in light and dark, on a wide screen and on a phone. page.sh TOEPLAB
# SOURCE; the exit code is 77 where Chromium is missing and the browser's part was skipped.
set -eu

toeplab=$1
source=$2
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
passed=0
failed=0
unset TOEPLAB_DATA TOEPLAB_BACKENDS TOEPLAB_TRACEBACK FORCE_COLOR
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" NO_COLOR=1

# expect NAME CODE PATTERN COMMAND...: COMMAND must exit with CODE and print PATTERN.
expect() {
    name=$1 code=$2 pattern=$3
    shift 3
    got=0
    "$@" >"$top/out" 2>&1 || got=$?
    if [ "$got" -eq "$code" ] && grep -q -e "$pattern" "$top/out"; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "not ok $name (exit code $got)"
        grep PROBE "$top/out" || sed 's/^/  /' "$top/out" | head -n 40
    fi
}

cat >"$top/page.lua" <<'END'
-- page.lua: does the page show <all> of it?
local tl = require "toeplab"
return tl.experiment "page" {
  answers = "tnn/table10",
  fixed = { corpus = "text:" .. ("In the beginning was the word. "):rep(60), length = 16 },
  grid = { decay = { 0.9, 0.99 } },
  seeds = 2,
  trial = function(t, c)
    local data = tl.corpus(c.corpus, { length = c.length, batch = 2, valid = 0.0, test = 0.3 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = 8, rpe_dim = 8,
      rpe_layers = 1, glu_dim = 8, decay = c.decay }
    local opt = tl.optim.adam(model, { lr = 5e-3, clip = 1.0 })
    for step in t:steps(8, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
    end
    if c.decay == 0.99 and t.seed == 2 then error("a planned <failure>") end
    for _, n in ipairs { 16, 32, 64 } do t:log { ["ppl@" .. n] = n / 8 + t.seed } end
    t:log { val_ppl = 20 + t.seed }
  end,
  report = function(trials, report)
    report.table({ "decay", "ppl" }, { { 0.9, trials[1].metrics.val_ppl } })
    report.plot { xlabel = "n", series = { { name = "one", y = { 1, 2, 3 } } } }
  end,
}
END

# ---- Commands ------------------------------------------------------------------------------------

cd "$top"
expect "nothing to report" 2 "holds no runs" "$toeplab" report page
expect "trials to show" 1 "planned <failure>" "$toeplab" run page.lua -q
expect "curves" 0 "results/figures/page-loss.svg" "$toeplab" plot page
expect "of the last sweep" 0 "results/figures/page-loss.svg" "$toeplab" plot
expect "curves are a picture" 0 "decay=0.99" cat "$top/results/figures/page-loss.svg"
expect "perplexity against length, as PNG" 0 "at.png" "$toeplab" plot page --at ppl@ --log x \
    -o at.png
expect "PNG it is" 0 "PNG" head -c 4 at.png
expect "against a key" 0 "val_ppl-against-decay" "$toeplab" plot page -m val_ppl --against decay
expect "a matrix" 0 "matrix.svg" "$toeplab" plot @last:2 decay=0.9 matrix --n 8 -o matrix.svg
expect "a matrix in the terminal" 0 "T, mean over channels" \
    "$toeplab" plot decay=0.9 seed=1 matrix --n 8 --term
expect "a kernel" 0 "kernel.svg" "$toeplab" plot decay=0.9 kernel --log y -o kernel.svg
expect "a response" 0 "response.svg" "$toeplab" plot decay=0.9 response --layer 1 -o response.svg
expect "in the terminal" 0 "decay=0.9 " "$toeplab" plot page --term
expect "a metric misspelt" 2 "did you mean 'loss'" "$toeplab" plot page --metric los
expect "an axis misspelt" 2 "did you mean 'decay'" "$toeplab" plot page --by deca
expect "a picture of no kind" 2 "must end in .svg, .png or .pdf" "$toeplab" plot page -o a.eps
expect "options that do not go together" 2 "choose one of" "$toeplab" plot page --at x --metric y
expect "no such folder" 1 "no such folder" "$toeplab" plot page -o "no such folder/a.svg"
mkdir bin
expect "no gnuplot" 1 "not installed: install gnuplot with the package manager" \
    env PATH="$top/bin" "$toeplab" plot page
printf '#!/bin/sh\n' >bin/apt-get
chmod +x bin/apt-get
expect "no gnuplot, no text, on Debian" 1 "apt install gnuplot-nox" \
    env PATH="$top/bin" "$toeplab" plot page --term
expect "a page without pictures" 0 "gnuplot is not installed" \
    env PATH="$top/bin" "$toeplab" report page -o plain.html
expect "the page reports it" 0 "Pictures are missing" cat plain.html
expect "an experiment misspelt" 2 "did you mean 'page'" "$toeplab" report pag
expect "no such sweep" 2 "there is no sweep 99" "$toeplab" report 99
expect "a page" 0 "results/reports/page.html" "$toeplab" report page
sum=$(awk 'BEGIN { while (n++ < 60) printf "In the beginning was the word. " }' | sha256sum)
expect "... with the sha256 of its text" 0 "${sum%% *}" cat results/reports/page.html
expect "of a sweep by number" 0 "again.html" "$toeplab" report 1 -o again.html
expect "the same page" 0 "same" sh -c 'cmp results/reports/page.html again.html && echo same'
expect "nothing foreign" 1 "^0$" grep -c -i -E 'https?:|<script|src=|@import|<link' again.html

# ---- The browser ---------------------------------------------------------------------------------

chromium=
for name in chromium chromium-browser google-chrome; do
    [ -n "$chromium" ] || chromium=$(command -v "$name" || true)
done
if [ -z "$chromium" ]; then
    echo "$passed passed, $failed failed; no Chromium here: the page was not opened"
    [ "$failed" -eq 0 ] && exit 77
    exit 1
fi

# Makes a copy of the page that measures itself and appends what it found.
sed -e '/<meta http-equiv/,/>$/d' again.html | sed '/^<\/body>/,$d' >probe.html
cat >>probe.html <<'END'
<pre id="probe"></pre><script>
const rgb = s => (s.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
const light = c => { const l = c.map(v => (v /= 255) <= .04045 ? v / 12.92
  : ((v + .055) / 1.055) ** 2.4); return .2126 * l[0] + .7152 * l[1] + .0722 * l[2]; };
const paper = rgb(getComputedStyle(document.body).backgroundColor);
// What the page's filter makes of a grey in a picture in the dark; a line keeps about its lightness.
const inverted = c => light(paper) > .5 ? c : c.map(v => 255 - v);
const contrast = c => { const a = light(c), b = light(paper);
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };
let least = 99, lines = 99, unseen = 0;
for (const e of document.querySelectorAll("h1,h2,p,a,td,th,dt,dd,li,figcaption,svg text")) {
  if (e.closest("details")) continue;
  const style = getComputedStyle(e), box = e.getBoundingClientRect();
  const colour = e.closest("svg") ? getComputedStyle(e.parentNode).fill : style.color;
  if (e.textContent.trim() && (box.width < 1 || box.height < 1)) unseen++;
  const seen = e.closest("svg") ? inverted(rgb(colour)) : rgb(colour);
  if (seen.length == 3) least = Math.min(least, contrast(seen));
}
for (const e of document.querySelectorAll("svg g[id*=_plot_] path[stroke*=rgb]"))
  lines = Math.min(lines, contrast(inverted(rgb(getComputedStyle(e).stroke))));
const shown = document.body.innerText;
const wanted = ["Does the page show <all> of it?", "a planned <failure>", "Paper against measured",
  "0.99 (ours)", "decay=0.99", "toeplab run page.lua", "Reproduction"];
const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
const found = "PROBE " + [
  "missing:" + wanted.filter(w => !shown.includes(w)), "unseen:" + unseen,
  "text:" + (least >= 4.5 ? "readable" : "contrast " + least),
  "lines:" + (lines >= 1.9 && lines < 99 ? "visible" : "contrast " + lines),
  "figures:" + document.querySelectorAll("svg[role=img][aria-label]").length,
  "headers:" + (document.querySelectorAll("th:not([scope])").length ? "unscoped" : "scoped"),
  "ids:" + (new Set(ids).size == ids.length ? "unique" : "twice"),
  "requests:" + performance.getEntriesByType("resource").length,
  "scroll:" + (document.documentElement.scrollWidth <= innerWidth ? "none" : "sideways"),
  "paper:" + (light(paper) > .5 ? "light" : "dark"), "width:" + innerWidth].join("; ");
document.getElementById("probe").textContent = found;
parent.postMessage(found, "*");
</script></body></html>
END

# Shows the page in a frame as narrow as a phone, because a browser window cannot be that narrow.
cat >phone.html <<'END'
<!doctype html><pre id="said"></pre>
<script>onmessage = e => { document.getElementById("said").textContent = e.data; };</script>
<iframe src="probe.html" style="width:390px; height:800px; border:0"></iframe>
END

# browse PAGE OPTIONS...: opens the page, and prints it and the browser's messages.
browse() {
    page=$1
    shift
    timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --no-first-run \
        --virtual-time-budget=3000 --user-data-dir="$top/profile" \
        --proxy-server=127.0.0.1:9 --enable-logging=stderr "$@" "file://$top/$page" 2>"$top/said"
    grep -E 'CONSOLE|Refused|ERR_' "$top/said" || true
}

seen="missing:; unseen:0; text:readable; lines:visible; figures:3; headers:scoped; ids:unique;"
seen="$seen requests:0; scroll:none; paper"
expect "seen on a wide screen" 0 "PROBE $seen:light" browse probe.html --window-size=1200,900 \
    --dump-dom
expect "seen on a phone" 0 "PROBE $seen:light; width:390" browse phone.html --dump-dom
expect "seen in the dark" 0 "PROBE $seen:dark" browse probe.html --window-size=1200,900 \
    --blink-settings=preferredColorScheme=0 --dump-dom
expect "the page itself opens" 0 "<h1>page</h1>" browse again.html --dump-dom
expect "and the browser has no complaint" 1 "^0$" grep -c -E 'CONSOLE|Refused|ERR_' said
browse again.html --window-size=800,600 --screenshot="$top/shot.png"
expect "a picture of it" 0 "PNG" head -c 4 shot.png

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
