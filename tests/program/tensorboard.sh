#!/bin/sh
# tensorboard.sh - reads the event files of a run by TensorBoard itself, with the first python of
# TOEPLAB_PYTHON, or python3. tensorboard.sh TOEPLAB SOURCE; the exit code is 77 where that python
# has no package tensorboard, or the build cannot write such files.
set -eu

toeplab=$1 source=$2
python=${TOEPLAB_PYTHON:-python3}
python=${python%%:*}
if ! "$python" -c 'import tensorboard' 2>/dev/null; then
    echo "skipped: $python has no package tensorboard"
    exit 77
fi
if ! "$toeplab" doctor 2>/dev/null | grep -q '^tensorboard  */'; then
    echo "skipped: this build has no protobuf-c"
    exit 77
fi
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua"
cat >"$top/curves.lua" <<'END_OF_SCRIPT'
local tl = require "toeplab"
return tl.experiment "curves" {
  fixed = { steps = 9, stop = "" },
  grid = { width = { 1, 2 }, op = { "tno", "ski" } },
  checkpoint = { steps = 4 },
  trial = function(t, c)
    local model = tl.nn.Linear(1, 1)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    for step in t:steps(c.steps, model, opt) do
      t:log { loss = c.width + step / 8 }
      if step == 7 and os.remove(c.stop) then os.execute "kill -TERM $PPID" end
    end
    t:log { acc = c.op == "ski" and 0.75 or 0.5 }
  end,
}
END_OF_SCRIPT
touch "$top/stop"
got=0
set -- "$toeplab" run -q "$top/curves.lua" "stop=$top/stop" --tensorboard "$top/files"
"$@" >"$top/out" 2>&1 || got=$?
[ "$got" = 143 ] || { echo "not ok: the first run ended with $got"; cat "$top/out"; exit 1; }
"$@" >"$top/out" 2>&1 || { cat "$top/out"; exit 1; }
cat >"$top/read.py" <<'END_OF_SCRIPT'
import pathlib, sys
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2

folders = sorted(pathlib.Path(sys.argv[1], "curves").iterdir())
assert len(folders) == 4, folders
most = 0
for folder in folders:
    most = max(most, len(list(folder.iterdir())))
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    infos = {tag: plugin_data_pb2.HParamsPluginData.FromString(content)
             for tag, content in events.PluginTagToContent("hparams").items()}
    start = infos["_hparams_/session_start_info"].session_start_info.hparams
    width, op = start["width"].number_value, start["op"].string_value
    assert folder.name.startswith(f"op={op}_width={width:g}-"), folder
    loss = [(e.step, e.value) for e in events.Scalars("loss")]
    assert loss == [(step, width + step / 8) for step in range(1, 10)], (folder, loss)
    acc = [(e.step, e.value) for e in events.Scalars("acc")]
    assert acc == [(9, 0.75 if op == "ski" else 0.5)], (folder, acc)
    end = infos["_hparams_/session_end_info"].session_end_info
    assert end.status == 1, end
assert most == 2, "the interrupted trial has a second file"
print("4 trials as they were logged, one of them in two files")
END_OF_SCRIPT
"$python" -W ignore "$top/read.py" "$top/files"
