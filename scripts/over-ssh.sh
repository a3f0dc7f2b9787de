#!/usr/bin/env bash
# `lacuna send FILE HOST:FOLDER` and `lacuna send HOST:FILE FOLDER` with a real sshd, between two hosts of `lacuna wan run`: 100 Mbit/s, 40 ms, 0.1 % loss.
#
#   scripts/over-ssh.sh            ends with 1 if anything is not as it should be
#
# Each way a transfer, by address and by an alias of ssh's configuration; an unknown host key, a key that may not log in, lacuna
# missing there, UDP blocked, ssh killed in the middle. Needs root, Debian's sshd (openssh-server) and ssh-keygen, and
# iptables to block UDP; without them it says so and ends with 0. Builds the release binary unless LACUNA names one.
set -euo pipefail
cd "$(dirname "$0")/.."
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "skipped: needs sshd"; exit 0; }
for tool in ssh ssh-keygen; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 0; }
done
if [ "$(id -u)" != 0 ]; then
    echo "skipped: needs root"
    exit 0
fi
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
export LACUNA_BIN
LACUNA_BIN=$(realpath "$LACUNA")
export WORK
WORK=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-over-ssh.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
mkdir -p /run/sshd "$WORK/in"
for key in host user stranger; do ssh-keygen -q -t ed25519 -N '' -f "$WORK/$key"; done
cp "$WORK/user.pub" "$WORK/authorized"
cat >"$WORK/sshd_config" <<END
Port 2222
HostKey $WORK/host
AuthorizedKeysFile $WORK/authorized
PidFile $WORK/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
END
echo "[10.77.0.1]:2222 $(cat "$WORK/host.pub")" >"$WORK/known"
: >"$WORK/nobody"
cat >"$WORK/config" <<END
Host cellar
    HostName 10.77.0.1
    Port 2222
    User root
    IdentityFile $WORK/user
    UserKnownHostsFile $WORK/known
    StrictHostKeyChecking yes
    BatchMode yes
END
head -c 20000000 /dev/urandom >"$WORK/file"
mkdir -p "$WORK/there/a folder's name/below"
head -c 20000000 /dev/urandom >"$WORK/there/file"
head -c 3000 /dev/urandom >"$WORK/there/a folder's name/below/\"quoted\" file"
cat >"$WORK/client" <<'END'
failed=0
ssh="ssh -p 2222 -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=$WORK/known -i $WORK/user"
# try NAME CODE PART WORDS...: what the command ends with, and a part of what it says.
try() {
    name=$1 code=$2 part=$3
    shift 3
    begin=$(date +%s.%N)
    "$LACUNA_BIN" send --remote-lacuna "${remote:-$LACUNA_BIN}" "$@" >"$WORK/out" 2>&1 && got=0 || got=$?
    took=$(echo "$(date +%s.%N) - $begin" | bc)
    if [ "$got" = "$code" ] && grep -qF "$part" "$WORK/out"; then
        echo "ok      $name ($took s): $(tail -1 "$WORK/out")"
    else
        echo "FAILED  $name: exit code $got, not $code, or not \"$part\":"
        cat "$WORK/out"
        failed=1
    fi
}
try "by address" 0 "sent 19.07 MiB" -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in"
cmp -s "$WORK/file" "$WORK/in/file" || { echo "FAILED  what came is something else"; failed=1; }
try "again" 0 "1 already there" -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in"
try "by an alias" 0 "sent 19.07 MiB" -e "ssh -F $WORK/config" "$WORK/file" "cellar:$WORK/a folder's name"
try "unknown host key" 3 "ssh did not get to" \
    -e "ssh -p 2222 -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=$WORK/nobody -i $WORK/user" \
    "$WORK/file" "root@10.77.0.1:$WORK/in"
try "a key that may not log in" 3 "ssh did not get to" \
    -e "ssh -p 2222 -o BatchMode=yes -o IdentitiesOnly=yes -o UserKnownHostsFile=$WORK/known -i $WORK/stranger" \
    "$WORK/file" "root@10.77.0.1:$WORK/in"
try "nobody listens" 3 "ssh did not get to" -e "ssh -p 2223 -o BatchMode=yes" "$WORK/file" "root@10.77.0.1:$WORK/in"
remote=/nowhere/lacuna try "lacuna is missing there" 3 "there is no /nowhere/lacuna" \
    -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in"
try "ports of a range" 0 ":60000" --ports 60000-60003 -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in3"
(sleep 1.5; pkill -KILL -f "ssh -p 2222 .*10.77.0.1 .*over-ssh") &
try "ssh is killed" 3 "the ssh connection with root@10.77.0.1 ended" --rate 20mbit \
    -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in4"
try "and resumed" 0 "sent" -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in4"
there="root@10.77.0.1:$WORK/there"
try "fetched" 0 "received 19.07 MiB" -e "$ssh" "$there/file" "$WORK/got"
cmp -s "$WORK/there/file" "$WORK/got/file" || { echo "FAILED  what was fetched is something else"; failed=1; }
try "fetched again" 0 "1 already there" -e "$ssh" "$there/file" "$WORK/got"
try "fetched by an alias" 0 "received" -e "ssh -F $WORK/config" "cellar:$WORK/there/a folder's name" "$WORK/got"
diff -r "$WORK/there/a folder's name" "$WORK/got/a folder's name" || failed=1
try "several are fetched, ports of a range" 0 ":60000" --ports 60000-60003 --channels 2 -e "$ssh" \
    "$there/file" "$there/a folder's name" "$WORK/got2"
try "a file that is not there" 3 "cannot read $WORK/there/absent" -e "$ssh" "$there/absent" "$WORK/got"
try "an unknown host key, to fetch" 3 "ssh did not get to" \
    -e "ssh -p 2222 -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=$WORK/nobody -i $WORK/user" \
    "$there/file" "$WORK/got"
(sleep 1.5; pkill -KILL -f "ssh -p 2222 .*10.77.0.1 .*over-ssh") &
try "ssh is killed in a fetch" 3 "the ssh connection with root@10.77.0.1 ended" --rate 20mbit \
    -e "$ssh" "$there/file" "$WORK/got3"
try "and resumed" 0 "received" -e "$ssh" "$there/file" "$WORK/got3"
if PATH=$PATH:/usr/sbin command -v iptables >/dev/null; then
    PATH=$PATH:/usr/sbin iptables -A OUTPUT -p udp -j DROP
    try "no UDP gets through" 3 "is UDP between the ends blocked" -e "$ssh" "$WORK/file" "root@10.77.0.1:$WORK/in5"
    try "no UDP gets through to fetch" 3 "is UDP between the ends blocked" -e "$ssh" "$there/file" "$WORK/got5"
else
    echo "skipped no UDP gets through: needs iptables"
fi
sleep 1
if pgrep -f "lacuna over-ssh" >/dev/null; then
    echo "FAILED  something listens still"
    failed=1
fi
exit $failed
END
"$LACUNA_BIN" wan run --quiet --rate 100mbit --rtt 40ms --loss 1e-3 -- \
    "$sshd" -D -f "$WORK/sshd_config" -E "$WORK/sshd.log" -- bash "$WORK/client"
