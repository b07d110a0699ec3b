# Sourced by the recipes and the quickstart.
# shellcheck shell=bash

# A text as Hydra reads it in an override, in quotes where it needs them: a bare comma, equals sign or
# "é" would mean something. The same rule as `quoted` in verl_msgrpo/preflight/settings.py.
quoted() {
    local -x LC_ALL=C
    if [[ $1 =~ ^[A-Za-z_/][A-Za-z0-9_./:-]*$ && ! ${1,,} =~ ^(null|true|false|inf|nan)$ ]]; then
        printf '%s' "$1"
    else
        printf "'%s'" "$(printf '%s' "$1" | sed -E "s/(\\\\*)'/\1\1\\\\'/g; s/(\\\\+)\$/\1\1/; s/\\$\{/\\\\\${/g")"
    fi
}
