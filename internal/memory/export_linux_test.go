package memory

import "io/fs"

func GroupLimit(root fs.FS) int64 { return groupLimit(root) }
