#!/usr/bin/env bash
# Checks what the documents say of the repository: `scripts/doc-paths.sh [FILE.md...]`, all of them
# if none is named.
#
# - A link to a file leads to one, and its anchor is a heading there.
# - A path in backquotes exists: from the top (`scripts/moves.sh`), from `crates/`
#   (`lacuna-place/src/slot.rs`), or the end of one (`bbr/verdict.rs`, `verdict.rs`). `*` and `{a,b}`
#   are expanded.
# - `lacuna-place/src/slot.rs::retire` names something that this file defines.
# - Paths from the top in code blocks exist.
# - README.md asks for the Rust version of Cargo.toml.
# - Each measurement that the code names (M-topic-number) is in docs/measurements.md.
#
# What is no path is left alone: words without a slash or a known extension, URLs, placeholders.
# CHANGELOG.md tells of what is gone; only its links are checked.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A is_file=() is_dir=() suffix=()
while IFS= read -r path; do
    [[ -e $path ]] || continue
    is_file[$path]=1
    rest=$path
    suffix[$rest]=1
    while [[ $rest == */* ]]; do
        rest=${rest#*/}
        suffix[$rest]=1
    done
    folder=$path
    while [[ $folder == */* ]]; do
        folder=${folder%/*}
        [[ -n ${is_dir[$folder]:-} ]] && break
        is_dir[$folder]=1
        rest=$folder
        suffix[$rest]=1
        while [[ $rest == */* ]]; do
            rest=${rest#*/}
            suffix[$rest]=1
        done
    done
done < <(git ls-files --cached --others --exclude-standard)

failures=0
complain() {
    printf '%s\n' "$1" >&2
    failures=$((failures + 1))
}

# Whether a path without wildcards is there, as it is or below `crates/`.
exists() {
    local path=${1%/}
    [[ -n ${is_file[$path]:-}${is_dir[$path]:-}${is_file[crates/$path]:-}${is_dir[crates/$path]:-} ]]
}

# The file that a path from the top, or from `crates/`, names.
file_of() {
    if [[ -n ${is_file[$1]:-} ]]; then echo "$1"; else echo "crates/$1"; fi
}

# Whether some path matches a pattern with `*`.
matches() {
    local path
    for path in "${!suffix[@]}"; do
        # The pattern is one.
        # shellcheck disable=SC2053
        [[ $path == $1 ]] && return 0
    done
    return 1
}

# The headings of a document, as anchors (GitHub's way).
anchors() {
    grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/`//g' | tr '[:upper:]' '[:lower:]' |
        sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# One word in backquotes.
check_word() {
    local at=$1 word=$2 first name path
    # A name in a file.
    name=
    if [[ $word =~ ^([A-Za-z0-9_./-]+\.(rs|sh|toml))::([A-Za-z0-9_:]+)$ ]]; then
        word=${BASH_REMATCH[1]}
        name=${BASH_REMATCH[3]##*:}
    fi
    [[ $word =~ ^\.?[A-Za-z0-9_][A-Za-z0-9_.*{},-]*(/[A-Za-z0-9_.*{},-]+)*/?$ ]] || return 0
    first=${word%%/*}
    if [[ $word == *[\{]* ]]; then
        [[ $word =~ ^[A-Za-z0-9_./*-]*\{[A-Za-z0-9_./,*-]+\}[A-Za-z0-9_./*-]*$ ]] || return 0
        local part head=${word%%\{*} tail=${word##*\}} list=${word#*\{}
        IFS=, read -ra parts <<<"${list%\}*}"
        for part in "${parts[@]}"; do check_word "$at" "$head$part$tail"; done
        return 0
    fi
    if [[ $word != */* ]]; then
        # A file's name: one with an extension that files here have.
        [[ $word =~ ^[A-Za-z0-9_*-]+\.(rs|sh|md|svg|h|c|txt|py)$ ]] || return 0
    elif [[ -z ${is_dir[$first]:-}${is_dir[crates/$first]:-} && ! $word =~ \.(rs|sh|md|svg|toml)$ ]]; then
        return 0
    fi
    if [[ $word == *\** ]]; then
        matches "$word" || complain "$at: nothing matches \`$word\`"
    elif exists "$word"; then
        [[ -z $name ]] && return 0
        path=$(file_of "$word")
        # A variant of an enum begins with a capital, a field does not.
        local member="^ +(pub(\([a-z]+\))? )?$name: "
        [[ $name == [A-Z]* ]] && member="^ +$name(,| *[({]|\$)"
        grep -qE "(fn|struct|enum|trait|const|static|type|mod|macro_rules!|union) +$name\b|$member" "$path" ||
            complain "$at: \`$path\` defines no \`$name\`"
    elif [[ -n $name || -z ${suffix[${word%/}]:-} ]]; then
        complain "$at: there is no \`$word\`"
    fi
}

# A link of a document.
check_link() {
    local at=$1 document=$2 target=$3 path anchor
    [[ $target =~ ^[a-z]+: ]] && return 0
    path=${target%%#*}
    anchor=
    [[ $target == *\#* ]] && anchor=${target#*#}
    if [[ -z $path ]]; then
        path=$document
    else
        path=$(realpath -m --relative-to=. "$(dirname "$document")/$path")
        [[ -n ${is_file[$path]:-}${is_dir[$path]:-} ]] || {
            complain "$at: the link to $target leads nowhere"
            return 0
        }
    fi
    [[ -z $anchor || $path != *.md ]] && return 0
    grep -qxF -- "$anchor" <(anchors "$path") || complain "$at: $path has no heading #$anchor"
}

if [[ $# -gt 0 ]]; then documents=("$@"); else mapfile -t documents < <(git ls-files --cached --others --exclude-standard '*.md'); fi
for document in "${documents[@]}"; do
    [[ -e $document ]] || continue
    while IFS=$'\t' read -r kind line token; do
        case $kind in
        link) check_link "$document:$line" "$document" "$token" ;;
        word) [[ $document == CHANGELOG.md ]] || check_word "$document:$line" "$token" ;;
        code)
            if [[ $document != CHANGELOG.md && $token == [a-z.]*/* && -n ${is_dir[${token%%/*}]:-} ]]; then
                check_word "$document:$line" "$token"
            fi
            ;;
        esac
    done < <(awk '
        /^ *```/ { is_code = !is_code; next }
        is_code {
            count = split($0, words, /[[:space:];"()]+/)
            for (i = 1; i <= count; i++) if (words[i] ~ /\//) print "code\t" NR "\t" words[i]
            next
        }
        {
            text = $0
            while (match(text, /\]\([^)[:space:]]+\)/)) {
                print "link\t" NR "\t" substr(text, RSTART + 2, RLENGTH - 3)
                text = substr(text, RSTART + RLENGTH)
            }
            text = $0
            while (match(text, /`[^`]+`/)) {
                print "word\t" NR "\t" substr(text, RSTART + 1, RLENGTH - 2)
                text = substr(text, RSTART + RLENGTH)
            }
        }' "$document")
done

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
grep -qF "Rust $wanted" README.md || complain "README.md: Cargo.toml wants Rust $wanted"

while IFS= read -r id; do
    grep -q "^## $id " docs/measurements.md || complain "docs/measurements.md: no $id, which the code names"
done < <(git grep -hoE '\bM-[a-z]+-[0-9]+\b' -- crates bench scripts | sort -u)

if [[ $failures -gt 0 ]]; then
    echo "$failures wrong" >&2
    exit 1
fi
