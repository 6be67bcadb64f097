# Sourced by the scripts beside it: one file of a package of the machine's own Debian release, unpacked into a cache folder. Needs no
# root. The caller has set `name` (of the script), `cache`, `package`, `size` (what is fetched) and `file` (which the package has).

log() { printf '%s: %s\n' "$name" "$*" >&2; }
fail() { log "$*"; exit 1; }

find_file() { find "$cache/root" -name "$file" 2>/dev/null | grep -m 1 .; }

# Of the machine's release: a newer one may need a newer C library than the programs that it is loaded into.
unpack() {
  local draft=$cache/draft.$$
  command -v apt-get >/dev/null || fail 'it is not installed, and there is no apt-get to fetch it with'
  rm -rf "$cache"/draft.*
  mkdir -p "$draft"/{lists/partial,archives/partial}
  # Lists of our own where the machine's are missing or old.
  local own=(-o "Dir::State::lists=$draft/lists" -o "Dir::Cache=$draft" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  log "fetching $package (some $size, kept for the next time) …"
  (cd "$draft/archives" && { apt-get -q download "$package" ||
    { apt-get -q "${own[@]}" update; apt-get -q "${own[@]}" download "$package"; }; }) >"$draft/log" 2>&1 ||
    { tail -n 5 "$draft/log" >&2; fail 'the package can not be fetched'; }
  dpkg-deb -x "$draft"/archives/"$package"_*.deb "$draft/root"
  # Renamed at last: what is there under its name is whole.
  rm -rf "$cache/root"
  mv "$draft/root" "$cache/root"
  rm -rf "$draft"
}

find_file && exit
unpack
find_file || fail "the package has no $file"
