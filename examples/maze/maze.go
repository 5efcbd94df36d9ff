package maze

import "strings"

// plan is the maze: cells are letters, and one can walk where no wall is between
// two of them.
const plan = `
a b|c
-
d e f
  - -
g h i
`

// Cells names the cells, row by row.
const Cells = "abcdefghi"

// Goals are the cells that tasks lead to.
const Goals = "cgi"

// Moves names the directions: north, east, south, west.
const Moves = "nesw"

// width is the number of cells of a row.
const width = 3

// rows holds the lines of plan. The even lines hold cells. Each odd line holds the walls
// between the line above and the line below.
var rows = strings.Split(strings.Trim(plan, "\n"), "\n")

// Next returns the cell after a move. A move into a wall, or a text that is no move,
// returns the same cell.
func Next(cell byte, move string) byte {
	i := strings.IndexByte(Cells, cell)
	row, column := i/width, i%width
	switch {
	case move == "n" && row > 0 && mark(2*row-1, 2*column) != '-':
		return Cells[i-width]
	case move == "s" && row < width-1 && mark(2*row+1, 2*column) != '-':
		return Cells[i+width]
	case move == "e" && column < width-1 && mark(2*row, 2*column+1) != '|':
		return Cells[i+1]
	case move == "w" && column > 0 && mark(2*row, 2*column-1) != '|':
		return Cells[i-1]
	}
	return cell
}

// mark returns the character at a position of the plan. Beyond the end of a line it
// returns a space.
func mark(line, column int) byte {
	if line < len(rows) && column < len(rows[line]) {
		return rows[line][column]
	}
	return ' '
}

// Distance returns the least number of moves between two cells.
func Distance(from, to byte) int {
	reached := map[byte]int{from: 0}
	for queue := []byte{from}; len(queue) > 0; queue = queue[1:] {
		for _, move := range strings.Split(Moves, "") {
			next := Next(queue[0], move)
			if _, ok := reached[next]; !ok {
				reached[next] = reached[queue[0]] + 1
				queue = append(queue, next)
			}
		}
	}
	return reached[to]
}
