//! Enums that are stored and sent as text: the text form of each variant is declared once, for
//! writing and for reading.

/// Declares an enum whose variants have a fixed text form, used in columns and on the wire.
///
/// ```
/// onward_base::text_enum! {
///     /// The state of a door.
///     DoorState {
///         /// The door is open.
///         Open = "open",
///         /// The door is closed.
///         Closed = "closed",
///     }
/// }
/// assert_eq!(DoorState::parse("open"), Some(DoorState::Open));
/// assert_eq!(DoorState::parse("ajar"), None);
/// assert_eq!(DoorState::Closed.to_string(), "closed");
/// ```
#[macro_export]
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The text form that columns and the wire use.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// Returns the variant with this text form, or `None` if no variant has it.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
