//! Ids of domains. Spec: rssl.md §5.

use core::fmt;

/// Domain of a stream. A distributor passes every item domain of a service, known or not.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub u8);

macro_rules! domains {
    ($($name:ident = $id:literal $text:literal,)*) => {
        impl Domain {
            $(
                #[doc = concat!("Id ", stringify!($id), ".")]
                pub const $name: Self = Self($id);
            )*

            /// The name, if the id is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($id => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

domains! {
    LOGIN = 1 "Login",
    DIRECTORY = 4 "Directory",
    DICTIONARY = 5 "Dictionary",
    MARKET_PRICE = 6 "MarketPrice",
    MARKET_BY_ORDER = 7 "MarketByOrder",
    MARKET_BY_PRICE = 8 "MarketByPrice",
    MARKET_MAKER = 9 "MarketMaker",
    SYMBOL_LIST = 10 "SymbolList",
    SERVICE_PROVIDER_STATUS = 11 "ServiceProviderStatus",
    HISTORY = 12 "History",
    HEADLINE = 13 "Headline",
    STORY = 14 "Story",
    REPLAY_HEADLINE = 15 "ReplayHeadline",
    REPLAY_STORY = 16 "ReplayStory",
    TRANSACTION = 17 "Transaction",
    YIELD_CURVE = 22 "YieldCurve",
    CONTRIBUTION = 27 "Contribution",
    PROVIDER_ADMIN = 29 "ProviderAdmin",
    ANALYTICS = 30 "Analytics",
    REFERENCE = 31 "Reference",
    NEWS_TEXT_ANALYTICS = 33 "NewsTextAnalytics",
    ECONOMIC_INDICATOR = 34 "EconomicIndicator",
    POLL = 35 "Poll",
    FORECAST = 36 "Forecast",
    MARKET_BY_TIME = 37 "MarketByTime",
    SYSTEM = 127 "System",
}

impl Domain {
    /// Whether this is login, directory or dictionary: streams of the connection and not of items.
    #[inline]
    #[must_use]
    pub const fn is_administrative(self) -> bool {
        matches!(self, Self::LOGIN | Self::DIRECTORY | Self::DICTIONARY)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "domain {}", self.0),
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
