#!/bin/bash
# Verify submissions by replay: verify_submissions.sh CHECKOUT [BASE]
# With BASE, those that CHECKOUT changed since it branched off there; without, all. Exit 1 if one has findings, or if the
# board does not say what its submissions say.
# An entry on published files fails here, with the sentence that asks for them: verify it where they are.
set -euo pipefail
checkout=$1 base=${2:-}
submissions=leaderboard/submissions
list() {
    if [ -n "$base" ]; then
        git -C "$checkout" diff -z --name-only --diff-filter=d "$base...HEAD" -- "$submissions"
    else
        git -C "$checkout" ls-files -z -- "$submissions"
    fi
}
# Folder names become arguments, so only plain ones are taken; any other is a finding.
failed=0 count=0
while IFS= read -r -d '' id; do
    if [[ ! $id =~ ^[a-z0-9]+(-[a-z0-9]+)*$ ]]; then
        printf 'FAILED %q: not a valid entry id\n' "$id"
        failed=1
        continue
    fi
    count=$((count + 1))
    printf '== %s\n' "$id"
    if ! seedbench verify "$checkout/$submissions/$id" --level replay; then
        printf 'FAILED %s\n' "$id"
        failed=1
    fi
done < <(list | grep -z '^[^/]*/[^/]*/[^/]*/' | cut -z -d/ -f3 | sort -zu || true)
python -m seedbench.leaderboard.boardfile "$checkout/leaderboard/leaderboard.json" || failed=1
echo "$count submissions verified"
exit $failed
