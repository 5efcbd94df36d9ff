# What the recipes share, examples/sql/run and examples/math/run. They read this file in the project's root, after they have set:
#
#   recipe   the name of the recipe, which is the target of make, the name of the run, and of the folder .NAME
#   model    MODEL, an hf:OWNER/NAME, a GGUF file or a directory
#   agent    the folder below examples of the agent, its data and its controls, if it is not that of the recipe
#   port     where the agent listens
#   prompts  numbers of the controls' prompts

folder=.$recipe
state=$folder/state
agent=${agent:-$recipe}
python=.examples/$agent/bin/python

fail() {
	printf 'make %s: %s\n' "$recipe" "$1" >&2
	exit 2
}

# check_settings PROMPTS NAME=NUMBER... ends the recipe unless the numbers are whole and above 0, and prompts are below PROMPTS.
check_settings() {
	local setting number last=$(($1 - 1))
	shift
	if [ -n "${SHA256:-}" ] && [ ! -f "$model" ]; then
		fail "SHA256 is given, but MODEL is no file: $model; give the file, or leave SHA256 out"
	fi
	for setting in "$@"; do
		[[ ${setting#*=} =~ ^[1-9][0-9]*$ ]] || fail "${setting%%=*} is no whole number above 0: ${setting#*=}"
	done
	for number in $prompts; do
		if ! [[ $number =~ ^[0-9]$ ]] || [ "$number" -gt "$last" ]; then
			fail "PROMPTS names $number; examples/$agent/controls.py has the prompts 0 to $last"
		fi
	done
	command -v python3.11 >/dev/null || fail "python3.11 is not there; the agent's packages are pinned for it (Debian: apt-get install python3.11-venv)"
}

# check_room says what is needed and what is free: disk for the model, its versions and its record; memory for the base in BF16 and the
# update, in GB.
check_room() {
	local disk=8 memory=6 free_disk free_memory
	[ ! -d "$folder/model" ] || disk=4
	free_disk=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024 / 1024))
	free_memory=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null || echo 8388608) / 1024 / 1024))
	printf '  needs     python3.11, %d GB of disk (%d free), %d GB of memory (%d free)\n' "$disk" "$free_disk" "$memory" "$free_memory"
	[ "$free_disk" -ge "$disk" ] || fail "$free_disk GB of disk are free, $disk are needed"
	[ "$free_memory" -ge "$memory" ] || fail "$free_memory GB of memory are free, $memory are needed"
}

# keep_settings TEXT ends the recipe if its folder holds a run with other settings, which would be continued on another model or other data.
keep_settings() {
	mkdir -p "$folder"
	if [ -f "$folder/settings" ] && [ "$(cat "$folder/settings")" != "$1" ]; then
		fail "$folder holds a run with other settings ($(cat "$folder/settings")): give those, or move $folder away"
	fi
}

# import_model makes $folder/model.
import_model() {
	local digest
	[ ! -d "$folder/model" ] || return 0
	if [ -n "${SHA256:-}" ]; then
		digest=$("$python" -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' "$model")
		[ "$digest" = "$SHA256" ] || fail "$model has the SHA-256 digest $digest, want $SHA256: remove it and download it again"
	fi
	rm -rf "$folder/model.new"
	bin/fulgurite import "$model" "$folder/model.new"
	mv "$folder/model.new" "$folder/model"
}

# placed FILE prints a spec of the recipe, or of its agent, as it must be in $folder, since specs name files from where they lie.
placed() {
	local file=examples/$recipe/$1
	[ -f "$file" ] || file=examples/$agent/$1
	sed "s|\.\./\.\./\.$recipe/||; s|\.\./\.\./\.$agent/||; s|\.\./recipe/control\.py, \.|../examples/recipe/control.py, ../examples/$agent|" "$file"
}

# start [FLAG...] AGENT [ARGUMENT...] starts the agent, which stays in memory, and Fulgurite, as process `dev`, and waits until both answer.
start() {
	local serve
	# What the last stack said must not be taken for this one's.
	rm -f "$folder/dev.log" "$folder/serve.log"
	"$python" sdk/python/fulgurite_serve.py --port "$port" "$@" >"$folder/serve.log" 2>&1 &
	serve=$!
	bin/fulgurite dev --dir "$state" >"$folder/dev.log" 2>&1 &
	dev=$!
	# shellcheck disable=SC2064 # the processes of now
	trap "kill $serve $dev 2>/dev/null; wait" EXIT
	until grep -qs '^Fulgurite is up' "$folder/dev.log" && grep -qs '^http' "$folder/serve.log"; do
		kill -0 $dev 2>/dev/null || { cat "$folder/dev.log" >&2; exit 1; }
		kill -0 $serve 2>/dev/null || { cat "$folder/serve.log" >&2; exit 1; }
		sleep 1
	done
}

# train trains $folder/$recipe.yaml to its end.
train() {
	if ! bin/fulgurite status --dir $state "$recipe" --json 2>/dev/null | grep -q '"status": "completed"'; then
		bin/fulgurite train --dir $state "$folder/$recipe.yaml"
	fi
}

# promoted prints the number of the promoted version, which is what a user gets.
promoted() {
	bin/fulgurite status --dir $state "$recipe" --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["progress"]["promoted"])'
}

# evaluate NAME SPLIT SPEC [FLAG...] evaluates a spec of $folder once, and prints the mean reward.
evaluate() {
	local name=$1 split=$2 spec=$3
	shift 3
	bin/fulgurite evaluate --dir $state "$folder/$spec" --split "$split" --name "$name" --json "$@" >"$folder/$name.json.new" || return
	mv "$folder/$name.json.new" "$folder/$name.json"
	"$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["mean"])' "$folder/$name.json"
}

# control NUMBER SPLIT [FLAG...] evaluates the untrained model with one of the prompts, and prints the mean reward: at temperature 0 on the
# gate, where the best prompt is chosen, at $temperature (1) on the test split.
control() {
	local number=$1 split=$2 name=control-$1-$2 at=${temperature:-1}
	[ "$split" != gate ] || at=0
	shift 2
	placed control.yaml | sed "s/\"PROMPT\"/\"$number\"/; s/^sampling:/&\n  temperature: $at/" >"$folder/$name.yaml"
	evaluate "$name" "$split" "$name.yaml" "$@"
}

# choose [FLAG...] sets `best` to the prompt that earns most on the gate.
choose() {
	local number reward
	best=
	for number in $prompts; do
		reward=$(control "$number" gate "$@")
		printf 'prompt %s earns %.3f on the gate, at temperature 0, untrained\n' "$number" "$reward"
		best=$(printf '%s\n' "$best" "$reward $number" | sed '/^$/d' | sort -s -k1,1gr | head -1)
	done
	best=${best#* }
}

# compare NAME RUN [FLAG...] compares a run or version with the promoted version on the test split, at temperature 0 and as sampled.
compare() {
	local name=$1 run=$2 version
	shift 2
	version=$(promoted)
	bin/fulgurite compare --dir $state "$run" "$recipe@$version" --split test --greedy --json "$@" >"$folder/$name-greedy.json"
	bin/fulgurite compare --dir $state "$run" "$recipe@$version" --split test --json "$@" >"$folder/$name-sampled.json"
}

# curve NAME=EVALUATION... draws the run's curve with the level of controls, $folder/curve.svg. $folder/report.json is there.
curve() {
	GOTOOLCHAIN=auto go run ./examples/recipe "$folder/report.json" "$folder/curve.svg" "$@"
	printf 'Curve: %s\n' "$folder/curve.svg"
}
