package harbor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
)

const (
	// longestReward is the most bytes of a file of rewards.
	longestReward = 1 << 20
	rewardJSON    = "reward.json"
	// usualReward is the name of the reward that counts by default.
	usualReward = "reward"
)

// readReward reads the reward in the directory of the tests' logs. As in Harbor,
// reward.json takes precedence over reward.txt. If it has several named rewards, the one
// with the given name counts; without a name that is "reward".
func readReward(directory, name string) (float64, error) {
	text, err := readRegular(filepath.Join(directory, rewardJSON))
	if err == nil {
		return rewardOfJSON(text, name)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	text, err = readRegular(filepath.Join(directory, "reward.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: they wrote neither /logs/verifier/reward.txt nor reward.json", ErrReward)
	}
	if err != nil {
		return 0, err
	}
	reward, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(reward) || math.IsInf(reward, 0) {
		return 0, fmt.Errorf("%w: reward.txt is %.60q, no finite number", ErrReward, text)
	}
	return reward, nil
}

// readRegular reads a file, but follows no link: processes of the agent may have replaced
// the file by one.
func readRegular(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > longestReward:
		return "", fmt.Errorf("%w: %s is not a file of at most %d bytes", ErrReward, filepath.Base(path), longestReward)
	}
	data, err := textfile.Read(path)
	if errors.Is(err, textfile.ErrText) {
		return "", fmt.Errorf("%w: %w", ErrReward, err)
	}
	return string(data), err
}

func rewardOfJSON(text, wanted string) (float64, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return 0, fmt.Errorf("%w: reward.json: %w", ErrReward, err)
	}
	table, ok := value.(map[string]any)
	if !ok {
		return rewardOf("reward.json", value)
	}
	if one, ok := table[cmp.Or(wanted, usualReward)]; ok {
		return rewardOf("reward.json: "+cmp.Or(wanted, usualReward), one)
	}
	for name, one := range table {
		if len(table) == 1 && wanted == "" {
			return rewardOf("reward.json: "+name, one)
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(table)), ", ")
	if wanted != "" {
		return 0, fmt.Errorf("%w: reward.json has no reward named %q (tasks.harbor.reward), but: %s", ErrReward, wanted, names)
	}
	return 0, fmt.Errorf(`%w: reward.json has %d rewards and none is named "reward": %s; tasks.harbor.reward says which one counts`, ErrReward, len(table), names)
}

// rewardWindow is how many bytes before and after the name of reward.json are searched for
// what the tests write there.
const rewardWindow = 400

var (
	objectText = regexp.MustCompile(`\{[^{}]*\}`)
	keyText    = regexp.MustCompile(`\\?["']([^"'\\]+)\\?["']\s*:`)
)

// missingReward says why the reward that counts is not among those that the tests write
// to reward.json, as far as their text shows that. It returns "" if nothing is known.
func (t Task) missingReward(wanted string) string {
	files, err := t.files(testsName)
	if err != nil {
		return "" // Check has read them
	}
	named := false
	var written, several []string // keys of objects near the name of reward.json
	for _, f := range files {
		if f.info.IsDir() || f.info.Size() > longestReward {
			continue
		}
		text, err := os.ReadFile(f.from)
		if err != nil {
			return ""
		}
		named = named || bytes.Contains(text, []byte(cmp.Or(wanted, usualReward)+`"`)) || bytes.Contains(text, []byte(cmp.Or(wanted, usualReward)+`'`)) ||
			bytes.Contains(text, []byte(cmp.Or(wanted, usualReward)+`\"`))
		at := bytes.Index(text, []byte(rewardJSON))
		if at < 0 {
			continue
		}
		around := text[max(0, at-rewardWindow):min(len(text), at+rewardWindow)]
		for _, object := range objectText.FindAll(around, -1) {
			keys := keyText.FindAllSubmatch(object, -1)
			var names []string
			for _, key := range keys {
				names = append(names, string(key[1]))
			}
			written = append(written, names...)
			if len(names) > 1 && several == nil {
				several = names
			}
		}
	}
	switch {
	case named:
		return ""
	case wanted != "" && written != nil:
		return fmt.Sprintf("tasks.harbor.reward: its tests write the rewards %s and never name %q", strings.Join(written, ", "), wanted)
	case several != nil:
		return fmt.Sprintf(`its tests write the rewards %s, and none is named "reward": give the one that counts in tasks.harbor.reward`, strings.Join(several, ", "))
	}
	return ""
}

// rewardOf returns a number, or 1 or 0 for a truth value.
func rewardOf(name string, value any) (float64, error) {
	switch v := value.(type) {
	case float64:
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	}
	return 0, fmt.Errorf("%w: %s is %v, no number", ErrReward, name, value)
}
