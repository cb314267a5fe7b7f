# fish completion for toeplab: verbs, options and ids are asked of the program itself.
function __toeplab_verbs
    toeplab help 2>/dev/null | string replace -rf '^  ([a-z]+)  +' '$1\t'
end

function __toeplab_options
    set -l verb (commandline -opc)[2]
    toeplab $verb --help 2>/dev/null | string replace -rf '^ *(?:-[a-z], )?(--[a-z-]+)[ A-Z]*  ' '$1\t'
end

function __toeplab_words
    switch (commandline -opc)[2]
        case show generate ls retry mark rm export reproduce plot
            test (commandline -opc)[2] = plot; and printf '%s\n' curves matrix kernel response
            printf '%s\n' @last @all @done @failed @interrupted @killed @timeout @queued @running
            toeplab ls --csv --sql "SELECT substr(id, 1, 12) AS word FROM (SELECT id FROM v_trials
                ORDER BY started DESC LIMIT 200) UNION ALL SELECT DISTINCT experiment FROM v_trials UNION ALL
                SELECT DISTINCT j.key || '=' FROM (SELECT config FROM v_trials ORDER BY started DESC LIMIT 100) c,
                json_each(c.config) j UNION ALL SELECT DISTINCT '@best:' || name FROM v_last WHERE trial IN
                (SELECT id FROM v_trials ORDER BY started DESC LIMIT 100)" 2>/dev/null | tail -n +2
        case report
            toeplab ls --csv --sql "SELECT DISTINCT experiment FROM v_trials" 2>/dev/null | tail -n +2
        case data
            printf '%s\n' fetch path show list generate bpe
            toeplab data 2>/dev/null | string match -r '^[a-z][a-z0-9-]+(?= +[\d-])'
        case table compare
            toeplab table --csv 2>/dev/null | string replace -rf '^([a-z]+/[a-z0-9]+),([^,]*),.*' '$1\t$2'
        case bench
            toeplab bench 2>/dev/null | string match -rg '^([a-z]+)  '
        case model
            toeplab model 2>&1 | string replace -r '.*: ' '' | string split ', '
        case help
            printf '%s\n' exit-codes environment
            __toeplab_verbs
    end
end

complete -c toeplab -n 'test (count (commandline -opc)) -eq 1' -f -a '(__toeplab_verbs)'
complete -c toeplab -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__toeplab_options)'
complete -c toeplab -n 'test (count (commandline -opc)) -gt 1' -a '(__toeplab_words)'
