# bash completion for toeplab: verbs, options and ids are asked of the program itself.
_toeplab() {
    local program=${COMP_WORDS[0]} verb=${COMP_WORDS[1]-} current=${COMP_WORDS[COMP_CWORD]} words=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words=$("$program" help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p')
    elif [[ $current == -* ]]; then
        words=$("$program" "$verb" --help 2>/dev/null | sed -n 's|^  \( *-.*\)|\1|p' | grep -oE -- '(^|[ ,])--?[a-z][a-z-]*')
    else
        case $verb in
        show) words="@last $("$program" ls --csv 2>/dev/null | sed '1d; s/,.*//')" ;;
        ls) words=$("$program" ls --csv 2>/dev/null | sed '1d' | cut -d , -f 2 | sort -u) ;;
        export) words="@last $("$program" ls --csv 2>/dev/null | sed '1d' | cut -d , -f 1,2 | tr , ' ')" ;;
        data) words=$("$program" data 2>/dev/null | sed -n '2,/^$/s/ .*//p') ;;
        model) words=$("$program" model 2>&1 | sed 's/.*: //; s/,//g') ;;
        help) words="exit-codes environment $("$program" help | sed -n 's/^  \([a-z]*\)  .*/\1/p')" ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _toeplab toeplab
