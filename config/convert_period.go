package config

import (
	"errors"
	"fmt"
	"strings"

	"idlecount.dev/idlecount/cron"
)

// fiveFields writes a period of the docker+machine executor as one of idlecount's. There it has up to seven fields:
// second, minute, hour, day of month, month, day of week, year. With six the second is left out, with five the year too,
// and then the second is 0: such a period was in force for a moment of each minute only, which is said in the note.
func fiveFields(spec, timezone string) (period, note string, err error) {
	fields := strings.Fields(spec)
	if len(fields) == 1 && strings.HasPrefix(fields[0], "@") {
		return "", "", fmt.Errorf("%s names a moment, and a period is a range of time", fields[0])
	}
	second, year := "0", "*"
	switch len(fields) {
	case 5:
	case 6:
		fields, year = fields[:5], fields[5]
	case 7:
		second, fields, year = fields[0], fields[1:6], fields[6]
	default:
		return "", "", fmt.Errorf("it has %d fields, and seven are needed", len(fields))
	}
	if !isAny(year) {
		return "", "", fmt.Errorf("it is for the year %s, and periods of idlecount come back each year", year)
	}
	fields, err = plainFields(fields)
	if err != nil {
		return "", "", err
	}
	period = strings.Join(fields, " ")
	if _, err := cron.ParsePeriod(period, timezone); err != nil {
		return "", "", err
	}
	if second != "0-59" && !isAny(second) {
		note = fmt.Sprintf("is for the second %s of its minutes only, so it was in force for a moment each; the policy is for the whole minutes", second)
	}
	return period, note, nil
}

// isAny says whether a field is restricted to nothing.
func isAny(field string) bool { return field == "*" || field == "?" || field == "*/1" }

// plainFields writes fields without what only docker+machine's parser knows: `?`, and names in full. What it knows of
// last days (L), workdays (W) and the n-th day of a month (#) can't be written.
func plainFields(fields []string) ([]string, error) {
	list := make([]string, 0, len(fields))
	for i, field := range fields {
		if field == "?" {
			field = "*"
		}
		field = strings.ToLower(field)
		names := fullNames(i)
		for _, name := range names {
			field = strings.ReplaceAll(field, name, name[:3])
		}
		rest := field
		for _, name := range names {
			rest = strings.ReplaceAll(rest, name[:3], "")
		}
		if strings.ContainsAny(rest, "lw#") {
			return nil, errors.New("idlecount has no L, W and # in days")
		}
		list = append(list, field)
	}
	return list, nil
}

// fullNames are the names that the i-th of five fields may hold.
func fullNames(i int) []string {
	switch i {
	case 3:
		return strings.Fields("january february march april may june july august september october november december")
	case 4:
		return strings.Fields("sunday monday tuesday wednesday thursday friday saturday")
	}
	return nil
}
