# Init container of a Flux node. Set above: hosts (Flux's hostlist), broker (text of broker.toml).
# shellcheck shell=bash disable=SC2154
set -u

shared=/mnt/flux
config=$shared/config
system=$config/etc/flux/system

echo "flux: preparing $(hostname) in $shared"
mkdir -p "$system/cron.d" "$config/etc/flux/config" "$config/etc/curve" "$config/run/flux" "$config/var/lib/flux" "$shared/view"

printf '%s\n' "$hosts" >"$system/hostlist"
printf '%s\n' "$broker" >"$config/etc/flux/config/broker.toml"
cat "$config/etc/flux/config/broker.toml"

# Spack's view is a folder of links into /opt/software: both have to be in the node.
for view in /opt/views/._view/*/; do
  cp -R "$view". "$shared/view"
done
cp -R /opt/software "$shared/"
if [ ! -e "$shared/view/bin/flux" ]; then
  echo "flux: this image has no flux in /opt/views: is it a flux-view image?" >&2
  exit 1
fi
touch "$shared/flux-operator-done.txt"
echo "flux: ready"
