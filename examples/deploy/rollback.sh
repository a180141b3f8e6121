#!/bin/sh
# rollback.sh ROOT RELEASE   lets ROOT/current name ROOT/RELEASE, and ROOT/previous what it named
# rollback.sh ROOT           goes back: current and previous change places
# A link is replaced in one step, so whoever starts meanwhile finds one of the two.
set -eu

[ $# -ge 1 ] && [ $# -le 2 ] || { echo "usage: $0 ROOT [RELEASE]" >&2; exit 2; }
root=$1
before=$(readlink "$root/current" || true)
release=${2:-$(readlink "$root/previous" || true)}

[ -n "$release" ] || { echo "$root has no previous release" >&2; exit 2; }
[ -f "$root/$release/manifest.json" ] || { echo "$root/$release is no run" >&2; exit 2; }
[ "$release" != "$before" ] || { echo "$release is current already"; exit 0; }

point() {
    ln -sfn "$2" "$root/.$1.new"
    mv -T "$root/.$1.new" "$root/$1"
}
[ -z "$before" ] || point previous "$before"
point current "$release"
echo "current: $release (before: ${before:-none}); restart the service to load it"
