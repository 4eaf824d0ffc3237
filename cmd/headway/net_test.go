package main

import "testing"

func TestServiceArgument(t *testing.T) {
	for text, want := range map[string][2]string{
		"db":                             {"db", ""},
		"db:5432":                        {"db", "5432"},
		"shop/db:sql":                    {"shop/db", "sql"},
		"db.":                            {"db", ""},
		"db.shop":                        {"shop/db", ""},
		"db.shop.svc:80":                 {"shop/db", "80"},
		"db.shop.svc.cluster.local.:sql": {"shop/db", "sql"},
	} {
		if service, port, err := serviceArgument(text); service != want[0] || port != want[1] || err != nil {
			t.Errorf("%s: %q, %q, %v", text, service, port, err)
		}
	}
	for _, text := range []string{"", ":80", "db:", "a/b/c", "/db", "shop/", "Db", "db.shop.example.org", "10.43.0.1", "http://db", "db.shop.svcx", "..", "db..svc"} {
		if service, port, err := serviceArgument(text); err == nil {
			t.Errorf("%q is read as %q, %q", text, service, port)
		}
	}
}
