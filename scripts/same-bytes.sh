#!/usr/bin/env bash
# Checks that two builds of pz write the same bytes, on one thread and on two, and that each restores the other's files.
# Usage: scripts/same-bytes.sh PZ OTHER_PZ DIR, where DIR holds the files to try
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
one=$1 other=$2 folder=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# All files with some options.
check() {
    local options=$1 file what size small small_file
    small_file=$(mktemp "$work/XXXXXX")
    for file in "$folder"/*; do
        what="$(basename "$file"), $options"
        # shellcheck disable=SC2086 # an option and its value
        "$one" $options -T1 -c "$file" >"$small_file"
        # shellcheck disable=SC2086
        "$one" $options -T2 -c "$file" | cmp - "$small_file" || die "$what: threads change the bytes"
        # shellcheck disable=SC2086
        "$other" $options -T2 -c "$file" | cmp - "$small_file" || die "$what: the builds give different bytes"
        "$one" -d -T2 -c "$small_file" | cmp - "$file" || die "$what: not restored"
        "$other" -d -T1 -c "$small_file" | cmp - "$file" || die "$what: not restored by the other build"
        size=$(stat -c %s "$file") small=$(stat -c %s "$small_file")
        case $(basename "$file") in
            random*) [ "$small" -le $((size + size / 1000 + 60)) ] || die "$what: $size bytes became $small" ;;
            zeros) [ "$options" = "-p store" ] || [ "$small" -lt 65536 ] || die "$what: $small bytes" ;;
        esac
    done
}

# Two at a time, since one thread is often enough for a file.
running=0
for options in -9 -8 -7 -6 -5 -4 -3 -2 -1 "-p lzh" "-p lzf" "-p fse" "-p bwt" "-p store"; do
    [ "$running" -lt 2 ] || { wait -n; running=1; }
    check "$options" &
    running=$((running + 1))
done
wait -n
[ "$running" -lt 2 ] || wait -n
say "The same bytes from $(ls "$folder" | wc -l) files at 9 levels and in 5 pipelines"
