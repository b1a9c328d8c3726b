//! The built-in dictionary: field ids, names and types of stock programs, for the messages of the load tools and of
//! public examples. The texts are our own. Spec: rssl.md §5.4, §9

use Kind::{Date, Enum, Minutes, Price, Received, Size, Text, Time, Uint};

use super::{Dictionary, EnumTable, EnumValue, FieldDef, FieldType};
use crate::rwf::DataType;

/// Kinds of fields. Each stands for a type before RWF, a length as text, and an RWF type.
#[derive(Clone, Copy)]
enum Kind {
    Uint,
    Text,
    Enum,
    Minutes,
    Time,
    Received,
    Price,
    Size,
    Date,
}

impl Kind {
    const fn parts(self, data_length: u16) -> (FieldType, u16, u8, DataType) {
        match self {
            Uint => (FieldType::Integer, 15, 0, DataType::UINT),
            Text => (FieldType::Alphanumeric, data_length, 0, DataType::RMTES_STRING),
            Enum => (FieldType::Enumerated, 3, 3, DataType::ENUM),
            Minutes => (FieldType::Time, 5, 0, DataType::TIME),
            Time => (FieldType::TimeSeconds, 8, 0, DataType::TIME),
            Received => (FieldType::Integer, 15, 0, DataType::TIME),
            Price => (FieldType::Price, 17, 0, DataType::REAL),
            Size => (FieldType::Integer, 15, 0, DataType::REAL),
            Date => (FieldType::Date, 11, 0, DataType::DATE),
        }
    }
}

/// Id, name, field to ripple to, kind, longest value in bytes, longer name.
#[rustfmt::skip]
const FIELDS: &[(i16, &str, i16, Kind, u16, &str)] = &[
    (1, "PROD_PERM", 0, Uint, 2, "PERMISSION CODE"),
    (2, "RDNDISPLAY", 0, Uint, 1, "TEMPLATE NUMBER"),
    (3, "DSPLY_NAME", 0, Text, 16, "NAME"),
    (4, "RDN_EXCHID", 0, Enum, 1, "EXCHANGE"),
    (5, "TIMACT", 0, Minutes, 5, "TIME OF CHANGE"),
    (6, "TRDPRC_1", 7, Price, 7, "LAST TRADE"),
    (7, "TRDPRC_2", 8, Price, 7, "TRADE BEFORE LAST"),
    (8, "TRDPRC_3", 9, Price, 7, "THIRD LAST TRADE"),
    (9, "TRDPRC_4", 10, Price, 7, "FOURTH LAST TRADE"),
    (10, "TRDPRC_5", 0, Price, 7, "FIFTH LAST TRADE"),
    (11, "NETCHNG_1", 0, Price, 7, "CHANGE"),
    (12, "HIGH_1", 0, Price, 7, "HIGHEST TODAY"),
    (13, "LOW_1", 0, Price, 7, "LOWEST TODAY"),
    (14, "PRCTCK_1", 0, Enum, 1, "DIRECTION OF TRADES"),
    (15, "CURRENCY", 0, Enum, 2, "CURRENCY UNIT"),
    (16, "TRADE_DATE", 0, Date, 4, "DAY OF TRADE"),
    (17, "ACTIV_DATE", 0, Date, 4, "DAY OF CHANGE"),
    (18, "TRDTIM_1", 0, Minutes, 5, "TIME OF TRADE"),
    (19, "OPEN_PRC", 0, Price, 7, "FIRST TODAY"),
    (21, "HST_CLOSE", 0, Price, 7, "CLOSE BEFORE TODAY"),
    (22, "BID", 0, Price, 7, "BEST BID"),
    (25, "ASK", 0, Price, 7, "BEST ASK"),
    (30, "BIDSIZE", 0, Size, 7, "SIZE OF BID"),
    (31, "ASKSIZE", 0, Size, 7, "SIZE OF ASK"),
    (32, "ACVOL_1", 0, Size, 7, "VOLUME TODAY"),
    (39, "EXDIVDATE", 0, Date, 4, "DAY EX DIVIDEND"),
    (40, "CTS_QUAL", 0, Enum, 1, "TRADE CONDITION"),
    (42, "BLKCOUNT", 0, Size, 7, "NUMBER OF BLOCKS"),
    (43, "BLKVOLUM", 0, Size, 7, "VOLUME OF BLOCKS"),
    (44, "TRDXID_1", 0, Enum, 1, "EXCHANGE OF TRADE"),
    (53, "TRD_UNITS", 0, Enum, 1, "PRICE FORMAT"),
    (54, "LOTSZUNITS", 0, Enum, 1, "LOT SIZE FORMAT"),
    (56, "PCTCHNG", 0, Price, 7, "CHANGE IN PERCENT"),
    (60, "CLOSE_BID", 0, Price, 7, "BID AT CLOSE"),
    (61, "CLOSE_ASK", 0, Price, 7, "ASK AT CLOSE"),
    (77, "NUM_MOVES", 0, Size, 7, "TRADES TODAY"),
    (78, "OFFCL_CODE", 0, Text, 12, "OFFICIAL CODE"),
    (79, "HSTCLSDATE", 0, Date, 4, "DAY OF CLOSE"),
    (100, "TURNOVER", 0, Price, 7, "VALUE TRADED"),
    (114, "BID_NET_CH", 0, Price, 7, "CHANGE OF BID"),
    (115, "BID_TICK_1", 0, Enum, 1, "DIRECTION OF BID"),
    (117, "CUM_EX_MKR", 0, Enum, 1, "CUM OR EX"),
    (118, "PRC_QL_CD", 0, Enum, 1, "PRICE QUALIFIER"),
    (131, "PRC_QL2", 0, Enum, 1, "SECOND QUALIFIER"),
    (178, "TRDVOL_1", 0, Size, 7, "SIZE OF TRADE"),
    (199, "OPENEXID", 0, Enum, 1, "EXCHANGE OF OPEN"),
    (203, "BID_HIGH_1", 0, Price, 7, "HIGHEST BID TODAY"),
    (207, "HST_CLSBID", 0, Price, 7, "BID BEFORE TODAY"),
    (208, "HSTCLBDDAT", 0, Date, 4, "DAY OF CLOSING BID"),
    (211, "NUM_BIDS", 0, Size, 7, "BIDS TODAY"),
    (212, "MKT_MKR_ID", 0, Text, 4, "MARKET MAKER"),
    (259, "RECORDTYPE", 0, Uint, 1, "KIND OF RECORD"),
    (270, "ACT_TP_1", 0, Enum, 1, "KIND OF CHANGE"),
    (293, "BID_MMID1", 0, Text, 4, "MAKER OF BID"),
    (296, "ASK_MMID1", 0, Text, 4, "MAKER OF ASK"),
    (372, "IRGPRC", 0, Price, 7, "IRREGULAR PRICE"),
    (373, "IRGVOL", 0, Size, 7, "IRREGULAR SIZE"),
    (374, "IRGCOND", 0, Enum, 2, "IRREGULAR KIND"),
    (375, "TIMCOR", 0, Time, 5, "TIME OF CORRECTION"),
    (376, "INSPRC", 0, Price, 7, "INSERTED PRICE"),
    (377, "INSVOL", 0, Size, 7, "INSERTED SIZE"),
    (378, "INSCOND", 0, Enum, 2, "INSERTED KIND"),
    (379, "SALTIM", 0, Time, 5, "TIME OF SALE"),
    (869, "OFF_CD_IND", 0, Enum, 1, "KIND OF CODE"),
    (1000, "GV1_TEXT", 0, Text, 6, "TEXT 1"),
    (1001, "GV2_TEXT", 0, Text, 6, "TEXT 2"),
    (1002, "GV3_TEXT", 0, Text, 6, "TEXT 3"),
    (1010, "VALUE_TS1", 0, Time, 5, "TIME OF VALUE"),
    (1018, "IRGXID", 0, Enum, 1, "IRREGULAR EXCHANGE"),
    (1021, "SEQNUM", 0, Size, 7, "SEQUENCE NUMBER"),
    (1023, "PRNTBCK", 0, Size, 7, "PRINT BACK"),
    (1025, "QUOTIM", 0, Time, 5, "TIME OF QUOTE"),
    (1041, "GV1_FLAG", 0, Text, 1, "FLAG 1"),
    (1067, "EXCHTIM", 0, Time, 5, "TIME AT EXCHANGE"),
    (1080, "PREF_DISP", 0, Uint, 2, "PREFERRED TEMPLATE"),
    (1379, "VOL_X_PRC1", 0, Price, 7, "AVERAGE BY VOLUME"),
    (1386, "DH_MKT_ST", 0, Enum, 1, "STATE OF MARKET"),
    (1465, "ADJUST_CLS", 0, Price, 7, "CLOSE ADJUSTED"),
    (1501, "STOCK_TYPE", 0, Text, 3, "KIND OF STOCK"),
    (1709, "RDN_EXCHD2", 0, Enum, 2, "SECOND EXCHANGE"),
    (3256, "OPN_NETCH", 0, Price, 7, "CHANGE SINCE OPEN"),
    (3264, "PRC_QL3", 0, Enum, 2, "THIRD QUALIFIER"),
    (3297, "ASKXID", 0, Enum, 1, "EXCHANGE OF ASK"),
    (3298, "BIDXID", 0, Enum, 1, "EXCHANGE OF BID"),
    (3372, "OFF_CLOSE", 0, Price, 7, "OFFICIAL CLOSE"),
    (3404, "VWAP", 0, Price, 7, "VOLUME WEIGHTED"),
    (3422, "PROV_SYMB", 0, Text, 32, "SYMBOL"),
    (3423, "PR_RNK_RUL", 0, Enum, 1, "RANKING"),
    (3426, "ORDER_ID", 0, Text, 24, "ORDER"),
    (3427, "ORDER_PRC", 0, Price, 7, "PRICE OF ORDER"),
    (3428, "ORDER_SIDE", 0, Enum, 1, "SIDE OF ORDER"),
    (3429, "ORDER_SIZE", 0, Size, 7, "SIZE OF ORDER"),
    (3430, "NO_ORD", 0, Uint, 4, "ORDERS"),
    (3431, "LOT_SIZE2", 0, Price, 7, "SECOND LOT SIZE"),
    (3853, "TRDTIM_MS", 0, Uint, 4, "TRADE MILLISECOND"),
    (3854, "SALTIM_MS", 0, Uint, 4, "SALE MILLISECOND"),
    (3855, "QUOTIM_MS", 0, Uint, 4, "QUOTE MILLISECOND"),
    (3856, "TIMCOR_MS", 0, Uint, 4, "CORRECTION MILLISEC"),
    (3886, "ORDER_TONE", 0, Text, 3, "TONE OF ORDER"),
    (3887, "SEQNUM_QT", 0, Size, 7, "QUOTE NUMBER"),
    (3902, "TIM_TRK_1", 0, Uint, 8, "SENT UPDATE"),
    (3903, "TIM_TRK_2", 0, Uint, 8, "SENT POST"),
    (3904, "TIM_TRK_3", 0, Uint, 8, "SENT GENERIC"),
    (4147, "ASK_TIM_MS", 0, Uint, 4, "ASK MILLISECOND"),
    (4148, "TIMACT_MS", 0, Uint, 4, "CHANGE MILLISECOND"),
    (6527, "LV_TIM_MS", 0, Uint, 4, "LEVEL MILLISECOND"),
    (6579, "BID_COND_N", 0, Text, 4, "CONDITION OF BID"),
    (6580, "ASK_COND_N", 0, Text, 4, "CONDITION OF ASK"),
    (8406, "QTE_ORIGIN", 0, Text, 1, "ORIGIN OF QUOTE"),
    (8935, "RETAIL_INT", 0, Enum, 1, "RETAIL INTEREST"),
    (8937, "LIMIT_INDQ", 0, Enum, 1, "LIMIT OF QUOTE"),
    (12783, "NBBO_IND", 0, Enum, 1, "BEST OF NATION"),
    (14238, "ORDRECV_MS", 0, Received, 5, "ORDER RECEIVED"),
];

/// Fields that share values, and the values: number, display, meaning.
type Table = (&'static [i16], &'static [(u16, &'static str, &'static str)]);

#[rustfmt::skip]
const TABLES: &[Table] = &[
    (&[4, 44, 199, 1018, 1709, 3297, 3298], &[
        (0, "   ", "none"), (1, "ASE", "American"), (2, "NYS", "New York"), (3, "BOS", "Boston"),
        (4, "CIN", "National"), (5, "PSE", "Arca"), (43, "NAS", "Nasdaq"), (560, "BAT", "Bats"),
    ]),
    (&[14, 115, 270], &[(0, " ", "unchanged"), (1, "U", "up"), (2, "D", "down"), (3, "=", "the same")]),
    (&[15], &[
        (0, "   ", "none"), (392, "JPY", "yen"), (756, "CHF", "Swiss franc"), (826, "GBP", "pound sterling"),
        (840, "USD", "US dollar"), (978, "EUR", "euro"),
    ]),
    (&[53, 54], &[(0, "INT", "whole"), (1, "1DP", "one decimal"), (2, "2DP", "two decimals"), (4, "4DP", "four decimals")]),
    (&[3428], &[(0, "   ", "none"), (1, "BID", "buyer"), (2, "ASK", "seller")]),
    (&[40, 117, 118, 131, 374, 378, 869, 1386, 3264, 3423, 8935, 8937, 12783], &[
        (0, "   ", "none"), (1, "A", "first"), (2, "B", "second"), (3, "C", "third"), (4, "D", "fourth"),
        (132, "IRG", "irregular"),
    ]),
];

const VERSION: &str = "1.0.0";

pub(super) fn dictionary() -> Dictionary {
    let mut dictionary = Dictionary::default();
    let (fields, enums) = (&mut dictionary.fields, &mut dictionary.enums);
    VERSION.clone_into(&mut fields.edition.version);
    for text in [&mut enums.edition.version, &mut enums.edition.rt_version, &mut enums.edition.dt_version] {
        VERSION.clone_into(text);
    }
    for &(id, name, ripples_to, kind, data_length, long_name) in FIELDS {
        let (field_type, length, enum_length, data_type) = kind.parts(data_length);
        fields.insert(FieldDef {
            id,
            name: name.to_owned(),
            long_name: long_name.to_owned(),
            ripples_to,
            field_type,
            length,
            enum_length,
            data_type,
            data_length,
        });
    }
    for (fields, values) in TABLES {
        let values = values.iter().map(|&(value, display, meaning)| EnumValue {
            value,
            display: display.as_bytes().to_vec(),
            meaning: meaning.to_owned(),
        });
        enums.insert(EnumTable { fields: fields.to_vec(), values: values.collect() });
    }
    dictionary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_dictionary_is_consistent() {
        let Dictionary { fields, enums } = dictionary();
        assert_eq!(fields.len(), FIELDS.len(), "no id twice");
        for field in fields.iter() {
            assert_eq!(fields.named(&field.name).map(|f| f.id), Some(field.id));
            assert_eq!(fields.data_type(field.id), field.data_type);
            assert!(field.ripples_to == 0 || fields.get(field.ripples_to).is_some(), "{}", field.name);
            assert_eq!(enums.table(field.id).is_some(), field.data_type == DataType::ENUM, "{}", field.name);
        }
        assert_eq!(enums.display(15, 840), Some(&b"USD"[..]));
        for (id, data_type) in [
            (22, DataType::REAL),
            (1025, DataType::TIME),
            (3426, DataType::RMTES_STRING),
            (3904, DataType::UINT),
        ] {
            assert_eq!(fields.data_type(id), data_type);
        }
    }
}
