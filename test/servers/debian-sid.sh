# Sourced by the scripts beside it: packages of Debian sid without touching the system, by apt's own checks of signatures,
# against lists and a status file of our own. The caller has set `name` (its own) and `cache` (a folder).

log() { printf '%s: %s\n' "$name" "$*" >&2; }
fail() { log "$*"; exit 1; }

# sid_lists DRAFT: reads the package list into the folder, and leaves apt's options for it in the array sid_options.
sid_lists() {
  local draft=$1 mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  command -v apt-get >/dev/null || fail 'apt-get is needed to fetch the packages of Debian sid'
  [ -e "$keyring" ] || fail "$keyring is needed: apt-get install debian-archive-keyring"
  mkdir -p "$draft"/{lists/partial,archives/partial,root}
  mirror=$(sed -nE 's/^(URIs: *|deb +(\[[^]]*\] *)?)(https?:[^ ]+debian)\/? *( .*)?$/\3/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)
  [ -n "$mirror" ] || fail 'no Debian mirror stands in /etc/apt/sources.list or sources.list.d: add one'
  echo "deb [signed-by=$keyring] $mirror sid main" >"$draft/sid.list"
  sid_options=(-q -y
    -o "Dir::Etc::sourcelist=$draft/sid.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$draft/lists" -o "Dir::Cache=$draft" -o Dir::State::status=/dev/null
    -o APT::Sandbox::User=root -o APT::Get::AllowUnauthenticated=false -o Debug::NoLocking=1)
  log 'reading the package list of Debian sid …'
  apt-get "${sid_options[@]}" update >"$draft/log" 2>&1 ||
    { tail -n 5 "$draft/log" >&2; fail 'the package list can not be read'; }
}

# sid_unpack WHAT APT_GET…: unpacks into $cache/root what apt-get fetches with these arguments, and says WHAT.
sid_unpack() {
  local what=$1 draft=$cache/draft.$$ package
  shift
  rm -rf "$cache"/draft.*
  sid_lists "$draft"
  log "fetching $what, kept for the next time …"
  (cd "$draft/archives" && apt-get "${sid_options[@]}" "$@") >"$draft/log" 2>&1 ||
    { tail -n 5 "$draft/log" >&2; fail 'the packages can not be fetched'; }
  for package in "$draft"/archives/*.deb; do dpkg-deb -x "$package" "$draft/root"; done
  # Renamed at last: what is there under its name is whole.
  rm -rf "$cache/root"
  mv "$draft/root" "$cache/root"
  rm -rf "$draft"
}
