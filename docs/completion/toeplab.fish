# fish completion for toeplab: the program prints the candidates for the last word.
function __toeplab
    set -l words (commandline -opc)
    set -l program (string replace -r -- '^~/' $HOME/ $words[1])
    $program complete -- $words (string unescape -- (commandline -ct); or echo) 2>/dev/null
end
complete -c toeplab -f -a '(__toeplab)'
