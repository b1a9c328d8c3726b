//! The messages of the load tools without a file: our own values, with the field ids of the vendor's tools.
//!
//! One refresh of 70 fields and two updates of 13 fields, whose field list is 74 bytes long: the update of the report.
//! Spec: rssl.md §9.2

/// (field id, type as message files call it, value).
pub(super) type Line = (i16, &'static str, &'static str);

/// The image of a MarketPrice item.
pub(super) const REFRESH: &[Line] = &[
    (1, "UINT", "6600"),
    (2, "UINT", "64"),
    (4, "ENUM", "2"),
    (6, "REAL", "84.11"),
    (11, "REAL", "1.35"),
    (12, "REAL", "85.02"),
    (13, "REAL", "82.77"),
    (14, "ENUM", "1"),
    (15, "ENUM", "840"),
    (16, "DATE", "05/18/2009"),
    (19, "REAL", "83.05"),
    (21, "REAL", "82.76"),
    (22, "REAL", "84.10"),
    (25, "REAL", "84.12"),
    (30, "REAL", "500"),
    (31, "REAL", "700"),
    (32, "REAL", "2481300"),
    (39, "DATE", "06/12/2009"),
    (40, "ENUM", "2"),
    (42, "REAL", "350000"),
    (43, "REAL", "12.31"),
    (44, "ENUM", "0"),
    (53, "ENUM", "1"),
    (56, "REAL", "1.87"),
    (60, "REAL", "2.20"),
    (61, "REAL", "91.40"),
    (77, "REAL", "12408"),
    (78, "RMTES_STRING", "LOAD TEST"),
    (79, "DATE", "05/11/2009"),
    (100, "REAL", "84.09"),
    (114, "REAL", "1.34"),
    (115, "ENUM", "1"),
    (117, "ENUM", "0"),
    (118, "ENUM", "0"),
    (131, "ENUM", "3"),
    (178, "REAL", "300"),
    (199, "ENUM", "1"),
    (207, "REAL", "61.88"),
    (208, "DATE", "11/20/2008"),
    (259, "UINT", "113"),
    (293, "RMTES_STRING", "NYS"),
    (296, "RMTES_STRING", "PSE"),
    (372, "REAL", "84.08"),
    (373, "REAL", "200"),
    (374, "ENUM", "1"),
    (375, "TIME", "15:41:20"),
    (376, "REAL", "84.13"),
    (377, "REAL", "400"),
    (378, "ENUM", "1"),
    (379, "TIME", "15:41:21"),
    (869, "ENUM", "0"),
    (1000, "RMTES_STRING", "R"),
    (1018, "ENUM", "0"),
    (1021, "REAL", "40117"),
    (1023, "REAL", "84.07"),
    (1025, "TIME", "15:41:22"),
    (1041, "RMTES_STRING", "R"),
    (1067, "TIME", "15:41:19"),
    (1080, "UINT", "1"),
    (1379, "REAL", "83.71"),
    (1465, "REAL", "83.00"),
    (1709, "ENUM", "0"),
    (3256, "REAL", "100"),
    (3297, "ENUM", "2"),
    (3298, "ENUM", "3"),
    (3422, "RMTES_STRING", "LOAD"),
    (3853, "UINT", "56479000"),
    (3854, "UINT", "56480000"),
    (3855, "UINT", "56482000"),
    (3856, "UINT", "56481000"),
];

/// Its updates, in turn.
pub(super) const UPDATES: [&[Line]; 2] = [
    &[
        (1025, "TIME", "15:41:23"),
        (3855, "UINT", "56483000"),
        (115, "ENUM", "1"),
        (1000, "RMTES_STRING", "R"),
        (22, "REAL", "84.11"),
        (114, "REAL", "1.35"),
        (30, "REAL", "600"),
        (25, "REAL", "84.13"),
        (31, "REAL", "900"),
        (293, "RMTES_STRING", "NYS"),
        (296, "RMTES_STRING", "BOS"),
        (3298, "ENUM", "3"),
        (3297, "ENUM", "2"),
    ],
    &[
        (1025, "TIME", "15:41:24"),
        (3855, "UINT", "56484000"),
        (115, "ENUM", "2"),
        (1000, "RMTES_STRING", "A"),
        (22, "REAL", "84.09"),
        (114, "REAL", "1.33"),
        (30, "REAL", "300"),
        (25, "REAL", "84.12"),
        (31, "REAL", "800"),
        (293, "RMTES_STRING", "PSE"),
        (296, "RMTES_STRING", "NYS"),
        (3298, "ENUM", "3"),
        (3297, "ENUM", "2"),
    ],
];

/// The image of a MarketByOrder item: (order id, fields).
pub(super) const ORDERS: [(&str, &[Line]); 3] = [
    (
        "100B",
        &[(3427, "REAL", "84.10"), (3428, "ENUM", "1"), (3429, "REAL", "500"), (3855, "UINT", "56482000")],
    ),
    (
        "101B",
        &[(3427, "REAL", "84.08"), (3428, "ENUM", "1"), (3429, "REAL", "900"), (3855, "UINT", "56482000")],
    ),
    (
        "102S",
        &[(3427, "REAL", "84.12"), (3428, "ENUM", "2"), (3429, "REAL", "700"), (3855, "UINT", "56482000")],
    ),
];

/// One changed order: (action as message files call it, order id, fields).
pub(super) type Change = (&'static str, &'static str, &'static [Line]);

/// Its updates, in turn.
pub(super) const ORDER_UPDATES: [&[Change]; 4] = [
    &[("UPDATE_ENTRY", "100B", &[(3855, "UINT", "56483000"), (3429, "REAL", "600")])],
    &[(
        "ADD_ENTRY",
        "103S",
        &[(3855, "UINT", "56484000"), (3427, "REAL", "84.14"), (3428, "ENUM", "2"), (3429, "REAL", "300")],
    )],
    &[(
        "UPDATE_ENTRY",
        "102S",
        &[(3855, "UINT", "56485000"), (3427, "REAL", "84.13"), (3429, "REAL", "800")],
    )],
    &[
        ("DELETE_ENTRY", "103S", &[]),
        ("UPDATE_ENTRY", "100B", &[(3855, "UINT", "56486000"), (3429, "REAL", "500")]),
    ],
];
