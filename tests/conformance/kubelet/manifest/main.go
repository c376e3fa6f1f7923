// Copyright (c) 2026, fleet.cdi contributors
// GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command manifest says what an API server would of the manifests on its standard input: it decodes them strictly, with
// the defaults, and validates config maps and daemon sets. One line for each that is fine, then what is wrong with one.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
)

func check(document []byte) (string, error) {
	decoder := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDecoder()
	object, kind, err := decoder.Decode(document, nil, nil)
	if err != nil {
		return "", err
	}
	var wrong field.ErrorList
	switch found := object.(type) {
	case *core.ConfigMap:
		wrong = corevalidation.ValidateConfigMap(found)
	case *apps.DaemonSet:
		wrong = appsvalidation.ValidateDaemonSet(found, corevalidation.PodValidationOptions{})
	default:
		err = fmt.Errorf("nothing is known of %s", kind)
	}
	if len(wrong) > 0 {
		err = wrong.ToAggregate()
	}
	return kind.Kind, err
}

func main() {
	reader := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		kind := ""
		if err == nil {
			document, err = yaml.ToJSON(document)
		}
		if err == nil && string(document) == "null" { // nothing but comments
			continue
		}
		if err == nil {
			kind, err = check(document)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(kind)
	}
}
