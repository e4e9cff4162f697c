package cli

import (
	"bytes"
	"cmp"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// table has columns of one width each, and below a row the lines that explain it.
type table struct {
	rows  [][]string
	below [][]string
}

func newTable(columns ...string) *table {
	return &table{[][]string{columns}, [][]string{nil}}
}

// add adds a row. An empty line is none.
func (t *table) add(cells []string, below ...string) {
	t.rows, t.below = append(t.rows, cells), append(t.below, below)
}

func (t *table) write(b *strings.Builder) error {
	lines, err := align(t.rows)
	if err != nil {
		return err
	}
	for i, line := range lines {
		b.WriteString(line + "\n")
		for _, below := range t.below[i] {
			if below != "" {
				b.WriteString("  -> " + below + "\n")
			}
		}
	}
	return nil
}

// align makes lines of equal columns; what is empty shows as "-". It works on all rows at once, since the lines that
// explain a row come between them and must not be part of its columns.
func align(rows [][]string) ([]string, error) {
	var b bytes.Buffer
	w := printers.GetNewTabWriter(&b)
	for _, cells := range rows {
		for i := range cells {
			cells[i] = cmp.Or(cells[i], "-")
		}
		if _, err := io.WriteString(w, strings.Join(cells, "\t")+"\n"); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), nil
}
