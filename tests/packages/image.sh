#!/bin/bash
# image.sh - builds both stages of the Dockerfile and runs their commands. Where no Docker daemon
# answers, it follows the instructions itself, in folders made by debootstrap: that shows that the
# packages suffice, and that the commands run as the user who is named. It needs root and network.
# image.sh SOURCE [FOLDER [COMMAND]]: FOLDER keeps what debootstrap fetched; COMMAND is run in the
# stage checkout instead of all the tests.
set -euo pipefail

source=$(readlink -f "$1")
folder=${2:-$(mktemp -d)}
tests=${3:-./lab test}
quick=(scale=smoke)

skip() { echo "skipped: $*"; exit 77; }

if docker info >/dev/null 2>&1; then
    docker build -t toeplab-checkout --target checkout "$source"
    docker build -t toeplab "$source"
    # shellcheck disable=SC2086 # the command is split into words
    docker run --rm toeplab-checkout $tests
    docker run --rm toeplab run experiments/quickstart.lua "${quick[@]}"
    exit
fi
[ "$(id -u)" = 0 ] || skip "no Docker daemon, and not root"
command -v debootstrap >/dev/null || skip "no Docker daemon, and no debootstrap"

base=$folder/base
if [ ! -e "$base/made" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase bookworm "$base" http://deb.debian.org/debian >/dev/null
    touch "$base/made"
fi

# ---- Instructions -------------------------------------------------------------------------------

declare -A roots
root='' user=root work=/ variables=() entry=() words=()

# Runs words in the root as the user, in the working folder and environment of the instructions.
inside() {
    unshare -m --propagation slave bash -c '
        mount -t proc none "$1/proc" && mount --bind /dev "$1/dev" || exit
        exec chroot --userspec="$2" "$1" /usr/bin/env -i PATH="$3" HOME="$4" "${@:5}"
    ' bash "$root" "$user" /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "$(sed -n "s/^$user:.*:\([^:]*\):[^:]*$/\1/p" "$root/etc/passwd")" \
        "${variables[@]}" sh -c 'cd "$0" && exec "$@"' "$work" "$@"
}

# The words of a JSON list of strings without escapes.
list() { tr -d '[]"' <<<"$1" | tr -s ', ' '\n'; }

from() {
    root=$folder/${3:-final} user=root work=/ variables=() entry=() words=()
    [ "$1" = debian:bookworm-slim ] || { echo "image.sh knows no base $1"; exit 1; }
    rm -rf "$root"
    cp -a "$base" "$root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    roots[${3:-final}]=$root
}

copy() {
    case $1 in
    --from=*) cp -aT "${roots[${1#--from=}]}$2" "$root$3" ;;
    .) git -C "$source" ls-files -z --cached --others --exclude-standard |
        (cd "$source" && xargs -0 ls -d 2>/dev/null | tar -c -T -) |
        tar -x --no-same-owner -C "$root$work" ;;
    *) echo "image.sh cannot copy $1"; exit 1 ;;
    esac
}

run() { # NAME COMMAND...
    echo "== $1: ${*:2}"
    local start=$SECONDS
    inside "${@:2}"
    echo "== $1: $((SECONDS - start)) s"
}

finish() {
    case $root in
    "$folder/checkout")
        # shellcheck disable=SC2206 # the command is split into words
        words=($tests) ;;
    *) words+=("${quick[@]}") ;;
    esac
    run "${root##*/} as $user" "${entry[@]}" "${words[@]}"
}

count=0
while read -r name rest; do
    count=$((count + 1))
    case $name in
    FROM)
        [ -z "$root" ] || finish
        # shellcheck disable=SC2086 # the rest is split into words
        from $rest ;;
    RUN) run "${root##*/}" sh -c "$rest" ;;
    COPY)
        # shellcheck disable=SC2086 # the rest is split into words
        copy $rest ;;
    ENV) variables+=("$rest") ;;
    USER) user=$rest ;;
    WORKDIR) work=$rest && mkdir -p "$root$work" ;;
    ENTRYPOINT) mapfile -t entry < <(list "$rest") ;;
    CMD) mapfile -t words < <(list "$rest") ;;
    *) echo "image.sh does not know $name"; exit 1 ;;
    esac
done < <(sed -e '/^ *#/d' -e '/^$/d' "$source/Dockerfile" | sed -e ':a' -e '/\\$/ { N; s/\\\n *//; ba; }')
[ "$count" -gt 5 ]
finish
du -sh "$root" | sed 's/\t.*/ in the last stage/'
echo "$count instructions followed"
