# Container of a Flux node; the arguments are the job's command, and what the runtime has as args. Set above: head_node
# (host name of the node that submits it), resources (flux R encode), flags (flux run).
# shellcheck shell=bash disable=SC2154

shared=/mnt/flux
view=$shared/view
config=$shared/config
system=$config/etc/flux/system
state=$config/var/lib/flux

# At the end: what the image brings comes first.
export PATH=$PATH:$view/bin
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$view/lib
export FLUX_RC_EXTRA=$view/etc/flux/rc1.d
export STATE_DIR=$state
export FLUX_OUTPUT_DIR=/tmp/fluxout
cp -R "$shared/software/." /opt/software/

# Flux runs with the Python that came with it; links in its bin lead out of the view.
for library in "$view"/lib/python3*/; do
  library=${library%/}
  python=$view/bin/$(basename "$library")
  export PYTHONPATH=${PYTHONPATH:-}:$library/site-packages
  if [ -f "$python" ]; then
    rm -rf "$view/bin/python" "$view/bin/python3"
    ln -sfn "$python" "$view/lib/python" || true
    ln -sfn "$python" "$view/lib/python3" || true
  fi
  break
done

# For people who open a shell here: `source /mnt/flux/flux-view.sh`, then `flux proxy $fluxsocket`.
cat >"$shared/load-fluxion.sh" <<'END'
flux module remove sched-simple
flux module load sched-fluxion-resource
flux module load sched-fluxion-qmanager
END
{
  echo '#!/bin/bash'
  for name in PATH PYTHONPATH LD_LIBRARY_PATH; do
    printf 'export %s=%q\n' "$name" "${!name:-}"
  done
  echo "export fluxsocket=local://$config/run/flux/local"
} >"$shared/flux-view.sh"

# The broker refuses a key that others can read.
curve=$config/etc/curve/curve.cert
cp /curve/curve.cert "$curve"
chmod go-r "$curve"
chown -R "$(id -u)" "$curve"

mkdir -p "$state" "$FLUX_OUTPUT_DIR" "$system/cron.d"
flux R encode --hosts="$(cat "$system/hostlist")" "${resources[@]}" >/tmp/R
mv /tmp/R "$system/R"

broker=(
  "-Scron.directory=$system/cron.d" -Stbon.fanout=256 "-Srundir=$config/run/flux" "-Sstatedir=$state"
  "-Slocal-uri=local://$config/run/flux/local" -Slog-stderr-level=0 -Slog-stderr-mode=local
)

if [ "$(hostname)" = "$head_node" ]; then
  # Split at blanks, patterns become names of files, as Trainer's script does: there is no other way to quote.
  # shellcheck disable=SC2048,SC2206
  command=($*)
  if [ ${#command[@]} -eq 0 ]; then
    echo "flux: interactive cluster"
    flux broker --config-path "$config/etc/flux/config" "${broker[@]}"
  else
    echo "flux: run ${flags[*]} ${command[*]}"
    flux start -o --config "$config/etc/flux/config" "${broker[@]}" flux run "${flags[@]}" "${command[@]}"
  fi
  ended=$?
else
  # The head node may come later than we do: its broker is tried until it has been there and ended well.
  until flux start -o --config "$config/etc/flux/config" "${broker[@]}"; do
    echo "flux: no broker at $head_node yet, or it ended badly ($?); again in 15 s"
    sleep 15
  done
  ended=0
fi
touch "$shared/flux-operator-complete.txt"
exit "$ended"
