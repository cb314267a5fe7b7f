#!/bin/sh
# serve.sh - tests toeplab report --serve: who gets an answer and who does not, that the page grows,
# its end; and the page in a browser. serve.sh TOEPLAB SOURCE; the exit code is 77 where the build
# has no libmicrohttpd or there is no curl, and where only Chromium is missing.
set -eu

toeplab=$1
source=$2
if ! command -v curl >/dev/null; then
    echo "skipped: there is no curl"
    exit 77
fi
if ! "$toeplab" doctor 2>/dev/null | grep -q '^http  */'; then
    echo "skipped: this build has no libmicrohttpd"
    exit 77
fi
top=$(mktemp -d)
server=
run=
emulated=${toeplab%/*}/tests/emulated.so
trap '[ -z "$server$run" ] || kill $server $run 2>/dev/null || :; wait; rm -rf "$top"' EXIT
passed=0
failed=0
unset TOEPLAB_TRACEBACK FORCE_COLOR
export TOEPLAB_DIR="$top/results" TOEPLAB_CACHE="$top/cache" TOEPLAB_LUA="$source/lua" no_proxy='*'
cd "$top"

result() { # NAME STATUS
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "not ok $1"
        head -c 2000 answer 2>/dev/null || :
        cat said 2>/dev/null || :
    fi
}

until_true() { # COMMAND...: waits until it succeeds, a minute at most
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    return 1
}

# answers NAME STATUS PATTERN CURL...: curl must get that status and a text with that pattern.
answers() {
    name=$1 status=$2 pattern=$3
    shift 3
    got=$(curl -s --max-time 20 --path-as-is -D headers -o answer -w '%{http_code}' "$@" || :)
    if [ "$got" = "$status" ] && grep -q -e "$pattern" answer headers; then result "$name" 0
    else
        echo "status $got"
        result "$name" 1
    fi
}

usage() { # NAME PATTERN ARGUMENTS...: a usage error with that pattern
    name=$1 pattern=$2 got=0
    shift 2
    "$toeplab" report "$@" >said 2>&1 || got=$?
    if [ "$got" = 2 ] && grep -q -e "$pattern" said; then result "$name" 0; else result "$name" 1; fi
}

cat >grow.lua <<'END_OF_SCRIPT'
local tl = require "toeplab"
return tl.experiment "grow" {
  fixed = { go = "", word = "<b>&" }, grid = { a = { 1, 2 } },
  trial = function(t, c)
    for step = 1, 20 do t:log({ loss = c.a / step, [c.word] = step }, step) end
    while c.a == 2 and not tl.sys.exists(c.go) do tl.sys.sleep(0.02) end
    if c.a == 2 then t:log({ loss = 0.015625 }, 21) end
  end,
}
END_OF_SCRIPT

usage "no folder" "holds no runs" --serve
cat >nvidia-smi <<'END_OF_SCRIPT'
#!/bin/sh
echo "0, 97, 1000, 80000"
END_OF_SCRIPT
chmod +x nvidia-smi
PATH=$top:$PATH
[ -e "$emulated" ] || emulated=cpu
"$toeplab" run -q grow.lua "go=$top/go" "device=$emulated" >run.out 2>&1 &
run=$!
working() { "$toeplab" status --json | grep -q '"done":1.*"running":1'; }
until_true working || result "a trial is at work" 1
usage "an experiment misspelt" "did you mean 'grow'" --serve gorw
usage "a port that is none" "takes a number from 1 to 65535" --serve --port 70000
usage "a port without --serve" "requires --serve" grow --port 8000
usage "a file with --serve" "cannot be combined with --serve" --serve -o x.html
got=0
timeout 20 "$toeplab" report --serve grow >&- 2>said || got=$?
[ "$got" = 1 ] && grep -q "the address cannot be printed" said
result "a closed standard output ends it" $?
# a shell lets its background jobs ignore SIGINT
env --default-signal=INT "$toeplab" report --serve grow >address 2>said &
server=$!
until_true grep -q '^http://127.0.0.1:[0-9]*/[0-9a-f]\{32\}/$' address
result "it prints its address" $?
url=$(cat address)
root=${url%/*/}
port=${root##*:}
token=${url#"$root/"}
token=${token%/}

answers "the page" 200 '<svg id="plot"' "$url"
answers "... may load nothing of others" 200 "^Content-Security-Policy: default-src 'none';" "$url"
answers "... is stored nowhere" 200 '^Cache-Control: no-store' "$url"
grep -q -i -E 'https?:|src=|@import|<link' answer && grep -v 'http://www.w3.org/2000/svg' answer |
    grep -q -i -E 'https?:|src=|@import|<link' && result "... and names no other" 1 ||
    result "... and names no other" 0
answers "the state" 200 '"metrics":\["<b>&","loss"\]' "${url}state.json"
used() { curl -s "${url}state.json" | grep -q '"cards":"gpu 0 *97 %   1.0 GB of 83.9 GB   a=2"'; }
if [ "$emulated" != cpu ]; then
    until_true used && result "the GPU's use" 0 || result "the GPU's use" 1
fi
answers "the curve" 200 '\[\[1,2,3.*,20\],\[1,0.5,' "${url}curve-2.json"
answers "no token" 403 "lacks the token" "$root/"
answers "no token, and a page" 403 "lacks the token" "$root/state.json"
answers "a wrong token" 403 "lacks the token" "$root/00000000000000000000000000000000/state.json"
answers "part of the token" 403 "lacks the token" "$root/${token%?}/state.json"
answers "more than the token" 403 "lacks the token" "$root/${token}0/state.json"
answers "an empty token" 403 "lacks the token" "$root//state.json"
answers "no such page" 404 "no such page" "${url}runs.db"
answers "no folder above" 404 "no such page" "${url}../../../etc/passwd"
answers "no path of a file" 404 "no such page" "$url/etc/passwd"
answers "POST" 405 "only GET" -d text "$url"
answers "PUT" 405 "only GET" -T grow.lua "${url}state.json"
answers "DELETE" 405 "only GET" -X DELETE "$url"
answers "a method that is none" 405 "only GET" -X GETS "$url"
answers "the name of another host" 403 "lacks the token" -H "Host: example.org:$port" "$url"
answers "a host that begins like ours" 403 "lacks the token" -H "Host: localhost.example.org" "$url"
answers "our other name" 200 plot -H "Host: localhost:$port" "$url"
got=$(curl -s --max-time 20 -o answer -w '%{http_code}' -X GET -d body "$url" || :)
[ "$got" = 000 ] && result "GET with a body" 0 || result "GET with a body" 1
head -c 100000 /dev/zero | tr '\0' x >long
got=$(curl -s --max-time 20 -o answer -w '%{http_code}' "$url$(head -c 100000 long)" || :)
case $got in 4?? | 000) result "a request without end" 0 ;; *) result "a request without end" 1 ;; esac
listens() { # the addresses of the server's process at which it listens, in hexadecimal
    for socket in "/proc/$server/fd/"*; do readlink "$socket"; done |
        sed -n 's/socket:\[\(.*\)\]/\1/p' | while read -r id; do
        awk -v id="$id" '$10 == id && $4 == "0A" { print $2 }' "/proc/$server/net/tcp" \
            "/proc/$server/net/tcp6"
    done
}
[ "$(listens)" = "0100007F:$(printf '%04X' "$port")" ] &&
    result "it listens on the loopback interface alone" 0 ||
    { listens; result "it listens on the loopback interface alone" 1; }
# Connections of others that say nothing keep the owner of the page out for 2 seconds at most.
python3 - "$port" <<'END' &
import socket, sys, time
held = []
for _ in range(600):
    s = socket.socket()
    s.settimeout(0.2)
    try:
        s.connect(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        pass
    held.append(s)
open("held", "w").close()
time.sleep(9)
END
strangers=$!
until_true test -e held
for _ in $(seq 12); do
    got=$(curl -s --max-time 2 -o answer -w '%{http_code}' "$url" || :)
    [ "$got" = 200 ] && break
    sleep 0.5
done
[ "$got" = 200 ] && result "connections without the token do not lock the page" 0 ||
    result "connections without the token do not lock the page" 1
wait "$strangers"
got=0
"$toeplab" report --serve --port "$port" grow >answer 2>&1 || got=$?
[ "$got" = 1 ] && grep -q "cannot listen on 127.0.0.1:$port: Address already in use" answer &&
    result "a port that is taken" 0 || result "a port that is taken" 1

# ---- The browser, and the end of the run ---------------------------------------------------------

chromium=
for name in chromium chromium-headless-shell chromium-browser google-chrome; do
    [ -n "$chromium" ] || chromium=$(command -v "$name" || true)
done
browse() { # [OPTION ADDRESS]
    timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --no-first-run \
        --virtual-time-budget=5000 --user-data-dir="$top/profile" --enable-logging=stderr \
        --dump-dom "${@:-$url}" 2>messages >answer
}
if [ -n "$chromium" ]; then
    browse
    grep -q '<path d="M[0-9. ]*L' answer && grep -q '>grow</h1>' answer &&
        grep -q '1 done, 1 running' answer && grep -q '<td>a=2</td><td>running</td>' answer
    result "the browser draws the curves" $?
    grep -q '<option value="&lt;b&gt;&amp;">' answer
    result "... and takes names as text" $?
    ! grep -E 'CONSOLE|Refused|ERR_' messages
    result "... without a complaint" $?
fi
touch go
wait "$run"
run=
grown() { curl -s "${url}curve-2.json" | grep -q ',21\],.*,0.015625\]'; }
until_true grown
result "a curve grows" $?
ended() { curl -s "${url}state.json" | grep -q '"line":"grow  2 trials: 2 done".*"working":0'; }
until_true ended
result "the end of the run is shown" $?
mv results away
until_true grep -q "the page stays as it is" said
result "a refresh that fails is reported" $?
mv away results
answers "... and the page is served on" 200 plot "$url"
[ "$(grep -c "the page stays" said)" = 1 ] && result "... once" 0 || result "... once" 1
kill -INT "$server"
got=0
wait "$server" || got=$?
server=
[ "$got" = 130 ] && ! curl -s --max-time 5 "$url" >answer && result "Ctrl-C ends it" 0 ||
    result "Ctrl-C ends it" 1

if [ -n "$chromium" ]; then
    cat >once.lua <<'END_OF_SCRIPT'
local tl = require "toeplab"
return tl.experiment "once" { grid = { a = { 1, 2 } },
  trial = function(t, c)
    t:log { loss = c.a == 1 and 1e10 + 0.5 or 0 / 0 }
    for step = 1, 9 do t:log({ rate = 0.1 }, step) end
  end }
END_OF_SCRIPT
    "$toeplab" run -q once.lua >run.out 2>&1
    env --default-signal=INT "$toeplab" report --serve once >address 2>said &
    server=$!
    until_true grep -q '^http' address
    url=$(cat address)
    answers "a value in full" 200 '\[\[0\],\[10000000000.5\]\].*\[\[0\],\[null\]\]' \
        "${url}curve-1.json"
    browse
    [ "$(grep -o '<circle [^>]*fill="#0072b2"' answer | wc -l)" = 1 ] &&
        grep -q '</i>a=1</button>' answer && grep -q '</i>a=2 (no value to draw)<' answer
    result "a curve of one value is a point, and one of none says so" $?
    # The page with a smoothing, which makes 0.1 differ from itself by rounding.
    curl -s "$url" | sed -e "s|<head>|&<base href='$url'>|" -e 's/? "loss"/? "rate"/' \
        -e 's/\(step="0.02" value="\)0/\10.6/' >rate.html
    browse --disable-web-security "file://$top/rate.html"
    grep -q '<path d="M[0-9. ]*L' answer && [ "$(grep -o '<text' answer | wc -l)" -lt 30 ]
    result "a curve whose values differ by rounding only has few ticks" $?
    kill -INT "$server"
    wait "$server" || :
    server=
fi
if [ -z "$chromium" ] && [ "$failed" -eq 0 ]; then
    echo "$passed passed, $failed failed; no Chromium here: the page was not opened"
    exit 77
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
