// Records what the real Kubeflow Trainer answers: its CRDs as an API server applies them, its webhooks and its controller, all on
// a fake client. record.py builds it with a release of Trainer and runs it; ../README.md describes what it reads and writes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// runs of each case: the real code iterates over maps, so its answers may differ from run to run.
const runs = 12

func main() {
	crds := flag.String("crds", "", "pattern of CRD files; several are separated by commas")
	cases := flag.String("cases", "", "folder of NAME/input.yaml")
	name := flag.String("name", "expected.json", "name of the files with the answers")
	base := flag.String("base", "", "name of files with other answers: only those that differ are written")
	types := flag.String("types", "", "file for the Go types")
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if *types != "" {
		check(os.WriteFile(*types, []byte(goTypes()), 0o644))
	}
	server, err := newServer(strings.Split(*crds, ","))
	check(err)
	inputs, err := filepath.Glob(filepath.Join(*cases, "*", "input.yaml"))
	check(err)
	for _, input := range inputs {
		answer, err := record(server, input)
		if err != nil {
			check(fmt.Errorf("%s: %w", input, err))
		}
		folder := filepath.Dir(input)
		if *base != "" {
			same, err := os.ReadFile(filepath.Join(folder, *base))
			check(err)
			if bytes.Equal(same, answer) {
				_ = os.Remove(filepath.Join(folder, *name))
				continue
			}
		}
		check(os.WriteFile(filepath.Join(folder, *name), answer, 0o644))
	}
	fmt.Println(len(inputs), "cases")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record runs a case several times. The first answer is that of the smallest text, the others are alternatives to its objects.
func record(server *server, input string) ([]byte, error) {
	documents, gates, err := readDocuments(input)
	if err != nil {
		return nil, err
	}
	answers := map[string]*answer{}
	for range runs {
		found, err := play(server, documents, gates)
		if err != nil {
			return nil, err
		}
		answers[string(found.text())] = found
	}
	texts := make([]string, 0, len(answers))
	for text := range answers {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	first := answers[texts[0]]
	for _, other := range texts[1:] {
		first.Alternatives = append(first.Alternatives, map[string]any{"objects": answers[other].Objects})
	}
	return first.text(), nil
}

// answer is what is recorded about the last TrainJob, or about the last runtime where there is none.
type answer struct {
	Admitted        bool             `json:"admitted"`
	Stage           string           `json:"stage,omitempty"`
	Errors          []fault          `json:"errors,omitempty"`
	Objects         []map[string]any `json:"objects"`
	ObjectsError    string           `json:"objectsError,omitempty"`
	TrainJob        map[string]any   `json:"trainJob,omitempty"`
	JobSetDefaulted map[string]any   `json:"jobSetDefaulted,omitempty"`
	Snapshot        map[string]any   `json:"snapshot,omitempty"`
	Reconcile       map[string]any   `json:"reconcile,omitempty"`
	JobSetAdmission *verdict         `json:"jobSetAdmission,omitempty"`
	JobSetUpdate    *verdict         `json:"jobSetUpdateAdmission,omitempty"`
	Alternatives    []map[string]any `json:"alternatives,omitempty"`
}

type verdict struct {
	Admitted bool `json:"admitted"`
}

type fault struct {
	Field  string `json:"field"`
	Type   string `json:"type"`
	Detail string `json:"detail"`
}

// text is the answer as JSON, a key a line.
func (a *answer) text() []byte {
	fields := map[string]json.RawMessage{}
	order := json.NewDecoder(bytes.NewReader(encode(a)))
	check(json.Unmarshal(encode(a), &fields))
	var lines []string
	for depth := 0; ; {
		token, err := order.Token()
		if err != nil {
			break
		}
		if key, ok := token.(string); ok && depth == 1 {
			lines = append(lines, fmt.Sprintf("%q: %s", key, fields[key]))
			var skipped json.RawMessage
			check(order.Decode(&skipped))
		} else if delim, ok := token.(json.Delim); ok {
			depth += map[json.Delim]int{'{': 1, '}': -1}[delim]
		}
	}
	return []byte("{\n" + strings.Join(lines, ",\n") + "\n}\n")
}

func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(value))
	return bytes.TrimSpace(out.Bytes())
}

// plain is a value as JSON has it.
func plain(value any) any {
	var out any
	check(json.Unmarshal(encode(value), &out))
	return out
}
