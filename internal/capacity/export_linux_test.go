package capacity

import "io/fs"

func OfGroups(root fs.FS) int { return ofGroups(root) }
