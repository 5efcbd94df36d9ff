package harbor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// longestReward is the most bytes of a file of rewards.
const longestReward = 1 << 20

// readReward reads the reward in the directory of the tests' logs. As in Harbor,
// reward.json takes precedence over reward.txt. If it has several named rewards, the one
// named reward counts.
func readReward(directory string) (float64, error) {
	text, err := readRegular(filepath.Join(directory, "reward.json"))
	if err == nil {
		return rewardOfJSON(text)
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
	data, err := os.ReadFile(path)
	return string(data), err
}

func rewardOfJSON(text string) (float64, error) {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return 0, fmt.Errorf("%w: reward.json: %w", ErrReward, err)
	}
	table, ok := value.(map[string]any)
	if !ok {
		return rewardOf("reward.json", value)
	}
	for name, one := range table {
		if len(table) == 1 {
			return rewardOf("reward.json: "+name, one)
		}
	}
	if one, ok := table["reward"]; ok {
		return rewardOf("reward.json: reward", one)
	}
	return 0, fmt.Errorf(`%w: reward.json has %d rewards and none is named "reward"`, ErrReward, len(table))
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
