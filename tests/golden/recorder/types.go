// The shape of the Kubernetes, JobSet and Trainer types into which Kubeflow Trainer decodes documents, in the notation of
// provider/kubernetes/values/typed.py.
package main

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const width = 110

var (
	scalars = map[reflect.Type]string{
		reflect.TypeFor[resource.Quantity]():  "quantity",
		reflect.TypeFor[intstr.IntOrString](): "intstr",
		reflect.TypeFor[metav1.Time]():        "time",
	}
	// What a CRD with embedded object metadata keeps of it; the API server prunes the rest.
	metadata = map[string]bool{"name": true, "namespace": true, "labels": true, "annotations": true, "finalizers": true}
	types    = map[string]string{}
	names    = map[reflect.Type]string{}
)

func goTypes() string {
	var out strings.Builder
	for _, root := range []reflect.Type{reflect.TypeFor[trainer.TrainingRuntimeSpec](), reflect.TypeFor[trainer.TrainJobSpec]()} {
		kind(root)
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		line := name
		for _, field := range strings.Fields(types[name]) {
			if len(line)+1+len(field) > width {
				out.WriteString(line + "\n")
				line = "   "
			}
			line += " " + field
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// kind is the notation of a Go type, and registers the structs it holds.
func kind(t reflect.Type) string {
	if name, ok := scalars[t]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.String:
		return "str"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int, reflect.Int64:
		return "int64"
	case reflect.Slice:
		return "[" + kind(t.Elem()) + "]"
	case reflect.Map:
		return "{" + kind(t.Elem()) + "}"
	case reflect.Struct:
		if _, ok := names[t]; !ok {
			names[t] = t.Name()
			if _, taken := types[t.Name()]; taken { // as batch/v1 and JobSet both have a SuccessPolicy
				names[t] = path.Base(path.Dir(t.PkgPath())) + t.Name()
			}
			types[names[t]] = ""
			types[names[t]] = strings.Join(fields(t), " ")
		}
		return names[t]
	}
	check(fmt.Errorf("no notation for %v", t))
	return ""
}

func fields(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			out = append(out, fields(embedded)...)
			continue
		}
		if t == reflect.TypeFor[metav1.ObjectMeta]() && !metadata[name] {
			continue
		}
		text := name + ":" + kind(f.Type)
		_, scalar := scalars[f.Type]
		switch {
		case f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() != reflect.Struct, f.Type.Kind() == reflect.Pointer && scalars[f.Type.Elem()] != "":
			text += "?"
		case strings.Contains(options, "omitzero"):
		case f.Type.Kind() == reflect.Struct, !scalar && f.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omitempty"):
			text += "!"
		}
		strategy, key := f.Tag.Get("patchStrategy"), f.Tag.Get("patchMergeKey")
		for _, s := range strings.Split(strategy, ",") {
			switch s {
			case "merge":
				text += "~" + key
			case "", "retainKeys": // acts only on a $retainKeys list, which no patch can hold
			default:
				check(fmt.Errorf("no notation for patch strategy %s", s))
			}
		}
		out = append(out, text)
	}
	return out
}
